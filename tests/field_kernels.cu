// One operation of field.cuh and curve.cuh a kernel, elementwise: what tests/test_kernels_field.py runs on the host.
#define POINT_G2
#include "curve.cuh"

#define UNARY(name, T, expression) \
    extern "C" __global__ void name(T* out, const T* a) { out[blockIdx.x] = expression(a[blockIdx.x]); }
#define BINARY(name, T, expression) \
    extern "C" __global__ void name(T* out, const T* a, const T* b) { out[blockIdx.x] = expression(a[blockIdx.x], b[blockIdx.x]); }

static Fp wide_product(const Fp& a, const Fp& b) { return reduce_wide(mul_wide(a, b)); }
static Fp square_of(const Fp& a, const Fp& b) { return dot(a, a, neg_lazy(b), b); }

BINARY(fr_add, Fr, add)
BINARY(fr_sub, Fr, sub)
BINARY(fr_mul, Fr, mul)
UNARY(fr_neg, Fr, neg)
UNARY(fr_sqr, Fr, sqr)
BINARY(fp_add, Fp, add)
BINARY(fp_sub, Fp, sub)
BINARY(fp_mul, Fp, mul)
BINARY(fp_mul_wide, Fp, wide_product)
BINARY(fp_squares_apart, Fp, square_of)
UNARY(fp_neg, Fp, neg)
UNARY(fp_sqr, Fp, sqr)
UNARY(fp_inverse, Fp, inverse)
BINARY(fp2_add, Fp2, add)
BINARY(fp2_sub, Fp2, sub)
BINARY(fp2_mul, Fp2, mul)
UNARY(fp2_sqr, Fp2, sqr)
UNARY(fp2_inverse, Fp2, inverse)
