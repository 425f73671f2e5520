"""Dialects, linear layouts, analyses and passes that every target shares. Names no vendor and imports no frontend."""
