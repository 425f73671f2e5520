"""Bessel functions of orders 0 and 1: j0, j1, y0, y1, cyl_bessel_i0, cyl_bessel_i1 (Abramowitz & Stegun, chapter 9).

Below 8 J has its first zeros as factors, so that its relative error is small there; Y is (2 / pi) log(x / 2) J plus a polynomial, whose
error is absolute. From 8 on both are sqrt(2 / (pi x)) (P cos - Q sin) (9.2.5, 9.2.6) with polynomials for P and Q, of absolute error 1e-15
or less. Polynomials: tests/dialects/lower_math/fit_special.py.
"""

from __future__ import annotations

import math
from typing import Any

from tilewright.dialects.lower_math.basic import unary
from tilewright.dialects.lower_math.double import exp, log
from tilewright.dialects.lower_math.double_trigonometric import cos, sin
from tilewright.dialects.lower_math.in_double import c, defined_in_double, horner

_J0_NEAR = (0.0011434937743762545, -0.002119794289479692, 0.0015636431645931661, -0.0006415390646406127, 0.00016977200713997844,
            -3.157342540223125e-05, 4.366932324640495e-06, -4.67712802150037e-07, 3.998839345546345e-08, -2.794862919041946e-09,
            1.6276489334239357e-10, -8.023536459990522e-12, 3.392348511855879e-13, -1.2440413339065111e-14,
            3.9954416831154186e-16, -1.1332991621602865e-17, 2.8601280666439675e-19, -6.464506426786036e-21,
            1.3182734700397198e-22, -2.4300783094059733e-24)
_J1_NEAR = (0.00019498936985895625, -0.0002697522746716368, 0.00015860016799369874, -5.408003239085507e-05, 1.224217365301561e-05,
            -1.98909351591414e-06, 2.442522260751993e-07, -2.3521922546334205e-08, 1.8268547695516101e-09,
            -1.1696932385965018e-10, 6.284733786383255e-12, -2.875548644984828e-13, 1.134317450896646e-14,
            -3.8985765240786234e-16, 1.1781264129775107e-17, -3.1553563663564507e-19, 7.542608388545838e-21,
            -1.6192689332255062e-22, 3.1439397646938784e-24, -5.531439593648113e-26)
_Y0_NEAR = (-0.3620273432371452, -0.4179207423206952, 1.3609456599655456, -0.2124599944206597, -0.6193407826303358,
            0.448246044635635, -0.15453679652310573, 0.033802856963973546, -0.0052350276707980705, 0.0006104345644549709,
            -5.5818304629731074e-05, 4.122054206464459e-06, -2.5144106576829147e-07, 1.2898223667599742e-08,
            -5.646313642602159e-10, 2.1353353813848822e-11, -7.049522041541529e-13, 2.0499675366710205e-14,
            -5.292112698621056e-16, 1.221234774716606e-17, -2.5346388816513185e-19, 4.764509811810504e-21, -8.124714499648001e-23)
_Y1_NEAR = (0.04510266206869483, -0.20760857842830602, 0.09022750636730935, 0.12052035426888161, -0.12641995056569882,
            0.0543901163079464, -0.014131923394248496, 0.002527134046682168, -0.0003337225701114377, 3.40636337553217e-05,
            -2.776505580628625e-06, 1.8524201432568852e-07, -1.0315388726198719e-08, 4.87106472171491e-10, -1.976421227218946e-11,
            6.96781036343445e-13, -2.154923344974263e-14, 5.895180858438606e-16, -1.437012541137754e-17, 3.1414166498317234e-19,
            -6.194319181876976e-21, 1.1089555548333083e-22, -1.8055292977408657e-24)
_P0 = (0.9994572757882519, -0.0005363673192130046, 6.13741608016085e-06, -2.0527448156495066e-07, 1.2803760619529231e-08,
       -1.2121181917899886e-09, 1.5501058085561605e-10, -2.488275527812745e-11, 4.772925905800956e-12, -1.0635980595216018e-12,
       2.659486692682967e-13, -6.423863317028666e-14, 1.839323047121498e-14, -1.1778137922744418e-14, 4.285344320644563e-15)
_Q0 = (-0.015555113879513518, 6.833149099344075e-05, -1.4771388326473744e-06, 7.106214852432276e-08, -5.668716091144362e-09,
       6.432789309241135e-10, -9.470386229469955e-11, 1.702943915933753e-11, -3.5891751531936186e-12, 8.68860563656614e-13,
       -2.330636917551769e-13, 5.765391531338497e-14, -1.7256018173230505e-14, 1.2703337763959492e-14, -4.832460403369333e-15)
_P1 = (1.0009070262780821, 0.0008988049416705578, -7.959694698492521e-06, 2.453676622286961e-07, -1.4708512124130545e-08,
       1.3603057890123779e-09, -1.713159495740877e-10, 2.7204123552148816e-11, -5.176302123326507e-12, 1.1461306026400314e-12,
       -2.851410619022524e-13, 6.871916868892792e-14, -1.961627571558179e-14, 1.2466964342989236e-14, -4.5247520559705565e-15)
_Q1 = (0.04677687402744898, -9.621458822054624e-05, 1.8212018512285427e-06, -8.291960701565042e-08, 6.4201325429831086e-09,
       -7.151113407635711e-10, 1.0395068460328534e-10, -1.8520806488547767e-11, 3.876268151236579e-12, -9.33020006505065e-13,
       2.4914316871937574e-13, -6.154174237314398e-14, 1.8370749899635615e-14, -1.3419652685122838e-14, 5.093381730784018e-15)
_I0_NEAR = (1.0, 16.0, 64.0, 113.77777777777777, 113.77777777777777, 72.81777777777778, 32.36345679012346, 10.567659360040313,
            2.6419148400100783, 0.5218597214834723, 0.08349755543735556, 0.01104099906609661, 0.001226777674010706,
            0.00011614463185907761, 9.481194437312357e-06, 6.742182713831965e-07, 4.213864155746685e-08, 2.332935633611595e-09,
            1.152062780376774e-10, 5.106396479664225e-12, 2.0408989214768187e-13, 7.472474111806007e-15, 2.27658021515503e-16,
            1.0328524423994738e-17)
_I1_NEAR = (0.5, 4.0, 10.666666666666666, 14.222222222222221, 11.377777777777778, 6.068148148148148, 2.311675485008818,
            0.6604787100025196, 0.14677304666722657, 0.02609298607417361, 0.003795343428970707, 0.0004600416277540256,
            4.718375669271916e-05, 4.148022566396223e-06, 3.160398145761397e-07, 2.1069320981921244e-08, 1.2393718092916468e-09,
            6.480376859062553e-11, 3.0317435326857715e-12, 1.276602133039428e-13, 4.859177049826131e-15, 1.6985458804820244e-16,
            4.945320129262325e-18, 2.1542865478567603e-19)
_I0_FAR = (0.4021765094450081, 0.0033605519836677235, 0.00013621607439187193, 1.1143033802583682e-05, 1.4838475863096976e-06,
           2.9735956581528157e-07, 8.872154618944625e-08, 3.932926571091252e-08, 2.155681110989874e-08, 7.532386417555123e-09,
           -6.805980075129678e-09, -1.331979859201994e-08, -5.162517880939013e-09, 7.323310735122893e-09, 6.789790403895736e-09,
           -3.11851456121224e-09, -4.8482509221176966e-09, 1.0924527246468664e-09, 2.3981927228949238e-09, -2.748111637276033e-10,
           -7.473844621887592e-10, 3.525321019700796e-11, 1.0881994785468934e-10)
_I1_FAR = (0.38939845902587233, -0.009749577193235609, -0.000219235763833829, -1.503854721127423e-05, -1.8349101539664522e-06,
           -3.483853071371078e-07, -1.0001220638799958e-07, -4.31323156237458e-08, -2.3382691353601083e-08,
           -8.407326839577817e-09, 6.795073490187386e-09, 1.3952625102162603e-08, 5.722677527454156e-09, -7.432535335623792e-09,
           -7.222524178953976e-09, 3.0717395650769477e-09, 5.094016301574338e-09, -1.0476127785270019e-09,
           -2.5062162405593894e-09, 2.582169443152386e-10, 7.79067217908059e-10, -3.2677656089803323e-11, -1.13288885034257e-10)
# zeros as sums of two
_J0_ZEROS = ((2.404825557695773, -1.176691651530894e-16), (5.520078110286311, 8.088597146146722e-17))
_J1_ZEROS = ((3.8317059702075125, -1.5269184090088067e-16), (7.015586669815619, -9.414165653410389e-17))


def _square_place(b: Any, x: Any) -> Any:
    """t of x in [0, 8]: x^2 = 32 + 32 t."""
    with b.no_contract():
        return b.fma(b.fmul(x, x), c(b, 1 / 32), c(b, -1.0))


def _near_j(b: Any, x: Any, zeros: tuple[tuple[float, float], ...], coefficients: tuple[float, ...]) -> Any:
    value = horner(b, _square_place(b, x), coefficients)
    with b.no_contract():
        for high, low in zeros:
            value = b.fmul(value, b.fmul(b.fsub(b.fsub(x, c(b, high)), c(b, low)), b.fadd(x, c(b, high))))
    return value


def _far(b: Any, x: Any, order: int, second: bool) -> Any:
    """J, or Y where ``second``, of x >= 8; sines and cosines of x - pi / 4 and x - 3 pi / 4 from those of x."""
    with b.no_contract():
        inverse = b.fdiv(c(b, 8.0), x)
        t = b.fma(b.fmul(inverse, inverse), c(b, 2.0), c(b, -1.0))
        p, q = (_P0, _Q0) if order == 0 else (_P1, _Q1)
        left, right = horner(b, t, p), b.fmul(horner(b, t, q), inverse)
        sine, cosine = sin(b, x), cos(b, x)
        plus, minus = b.fadd(cosine, sine), b.fsub(sine, cosine)
        along, across = (plus, minus) if order == 0 else (minus, b.fneg(plus))  # cos and sin of the shifted angle, times sqrt(2)
        wave = b.fma(left, across, b.fmul(right, along)) if second else b.fma(left, along, b.fneg(b.fmul(right, across)))
        return b.fmul(wave, unary(b, "llvm.intr.sqrt", b.fdiv(c(b, 1 / math.pi), x)))


def _parts(b: Any, x: Any) -> tuple[Any, Any, Any]:
    """(whether below 8, the argument for there, that for beyond)."""
    small = b.fcmp("olt", x, c(b, 8.0))
    return small, b.select(small, x, c(b, 1.0)), b.select(b.fcmp("ult", x, c(b, 8.0)), c(b, 8.0), b.select(b.fcmp("oeq", x, c(b, math.inf)), c(b, 8.0), x))


def _finish(b: Any, x: Any, result: Any) -> Any:
    result = b.select(b.fcmp("oeq", b.fabs(x), c(b, math.inf)), c(b, 0.0), result)
    return b.select(b.fcmp("uno", x, x), x, result)


@defined_in_double("j0", ulp=math.inf, ulp32=math.inf)
def j0(b: Any, x: Any) -> Any:
    small, near, far = _parts(b, b.fabs(x))
    return _finish(b, x, b.select(small, _near_j(b, near, _J0_ZEROS, _J0_NEAR), _far(b, far, 0, False)))


@defined_in_double("j1", ulp=math.inf, ulp32=math.inf)
def j1(b: Any, x: Any) -> Any:
    small, near, far = _parts(b, b.fabs(x))
    with b.no_contract():
        value = b.fmul(near, _near_j(b, near, _J1_ZEROS, _J1_NEAR))
    value = b.select(small, value, _far(b, far, 1, False))
    return _finish(b, x, b.select(b.fcmp("olt", x, c(b, 0.0)), b.fneg(value), value))


def _second(b: Any, x: Any, order: int) -> Any:
    small, near, far = _parts(b, x)
    positive = b.fcmp("ogt", near, c(b, 0.0))
    near = b.select(positive, near, c(b, 1.0))
    t = _square_place(b, near)
    with b.no_contract():
        logarithm = log(b, b.fmul(near, c(b, 0.5)))
        # the factor 2 / pi is applied to the logarithm, whose product with J vanishes where J does
        scaled = b.fmul(logarithm, c(b, 2 / math.pi))
        if order == 0:
            value = b.fma(scaled, _near_j(b, near, _J0_ZEROS, _J0_NEAR), horner(b, t, _Y0_NEAR))
        else:
            regular = b.fma(scaled, _near_j(b, near, _J1_ZEROS, _J1_NEAR), horner(b, t, _Y1_NEAR))
            value = b.fma(regular, near, b.fdiv(c(b, -2 / math.pi), near))
    value = b.select(small, value, _far(b, far, order, True))
    value = b.select(b.fcmp("oeq", x, c(b, 0.0)), c(b, -math.inf), b.select(b.fcmp("olt", x, c(b, 0.0)), c(b, math.nan), value))
    return _finish(b, b.select(b.fcmp("oeq", x, c(b, -math.inf)), c(b, math.nan), x), value)


@defined_in_double("y0", ulp=math.inf, ulp32=math.inf)
def y0(b: Any, x: Any) -> Any:
    return _second(b, x, 0)


@defined_in_double("y1", ulp=math.inf, ulp32=math.inf)
def y1(b: Any, x: Any) -> Any:
    return _second(b, x, 1)


def _modified(b: Any, x: Any, near: tuple[float, ...], far: tuple[float, ...], odd: bool) -> Any:
    magnitude = b.fabs(x)
    small = b.fcmp("olt", magnitude, c(b, 8.0))
    inside = b.select(small, magnitude, c(b, 0.0))
    outside = b.op("llvm.intr.minnum", (b.select(small, c(b, 8.0), magnitude), c(b, 720.0)), (b.t_f64,)).result
    with b.no_contract():
        low = horner(b, b.fmul(b.fmul(inside, inside), c(b, 1 / 64)), near)
        if odd:
            low = b.fmul(low, inside)
        root = exp(b, b.fmul(outside, c(b, 0.5)))  # e^x overflows before I does
        shape = b.fdiv(horner(b, b.fma(b.fdiv(c(b, 8.0), outside), c(b, 2.0), c(b, -1.0)), far), unary(b, "llvm.intr.sqrt", outside))
        high = b.fmul(b.fmul(root, shape), root)
    value = b.select(small, low, high)
    if odd:
        value = b.copysign(value, x)
    return b.select(b.fcmp("uno", x, x), x, value)


@defined_in_double("cyl_bessel_i0", ulp=6.0)
def cyl_bessel_i0(b: Any, x: Any) -> Any:
    return _modified(b, x, _I0_NEAR, _I0_FAR, False)


@defined_in_double("cyl_bessel_i1", ulp=6.0)
def cyl_bessel_i1(b: Any, x: Any) -> Any:
    return _modified(b, x, _I1_NEAR, _I1_FAR, True)
