// Many multiples of one point, as affine points: key generation. Also multiples of bases for the MSM's copies.
//
// In: scalars in Fr, Montgomery form; out: affine Montgomery points, infinity all zero bytes. G2 with POINT_G2.
// Method: table of d * 2^(8w) * base for 32 windows w and d = 1..255, then 31 mixed additions a scalar into XYZZ, then
//   division by Z with one inversion for many points (Montgomery's trick), prefix products kept in the output's x.
// Launch: one thread a table entry, a scalar, or (normalise) a run of `batch` points spread over the threads.
// Cost: 32 mixed additions and about 8 products a point; 2^24 points of G1 are 5e8 additions.
// Papers: Brickell, Gordon, McCurley, Wilson 1992 (fixed base); Montgomery 1987 (batched inversion).
// Python caller: loader.Kernels.fixed_base, .copies.
#include "curve.cuh"

#define FIXED_BITS 8
#define FIXED_ENTRIES 255
#define FIXED_WINDOWS 32

DEV u32 fixed_thread() { return blockIdx.x * blockDim.x + threadIdx.x; }

// out[w * 255 + d - 1] = d * bases[w], bases[w] = 2^(8w) * base from the host
extern "C" __global__ void __launch_bounds__(64) fixed_table(const Affine* bases, Xyzz* out) {
    u32 i = fixed_thread();
    if (i >= FIXED_WINDOWS * FIXED_ENTRIES) return;
    u32 digit = i % FIXED_ENTRIES + 1;
    Xyzz g = widen(load(bases + i / FIXED_ENTRIES)), sum = infinity();
    for (int bit = FIXED_BITS - 1; bit >= 0; bit--) {
        sum = double_point(sum);
        if (digit >> bit & 1) add_into(sum, g);
    }
    store(out + i, sum);
}
extern "C" __global__ void __launch_bounds__(128, 3) fixed_multiply(const Affine* table, const Fr* scalars, u32 count,
                                                                 Xyzz* out) {
    u32 i = fixed_thread();
    if (i >= count) return;
    Fr one = Fr::zero(), s = load(scalars + i);
    one.v[0] = 1;
    s = mul(one, s);
    Xyzz sum = infinity();
    for (u32 w = 0; w < FIXED_WINDOWS; w++) {
        u32 digit = s.v[0] & FIXED_ENTRIES;
        UNROLL for (int k = 0; k < Fr::N - 1; k++) s.v[k] = s.v[k] >> FIXED_BITS | s.v[k + 1] << (32 - FIXED_BITS);
        s.v[Fr::N - 1] >>= FIXED_BITS;
        if (!digit) continue;
        Affine p = load(table + w * FIXED_ENTRIES + digit - 1);
        if (is_infinity(p)) continue;  // a base of infinity
        if (is_infinity(sum)) sum = widen(p);
        else add_mixed(sum, p);
    }
    store(out + i, sum);
}
// out[i] = 2^doublings * bases[i]
extern "C" __global__ void __launch_bounds__(64) double_bases(const Affine* bases, u32 count, u32 doublings, Xyzz* out) {
    u32 i = fixed_thread();
    if (i >= count) return;
    Xyzz sum = widen(load(bases + i));
    for (u32 k = 0; k < doublings; k++) sum = double_point(sum);
    store(out + i, sum);
}
// out[i] = points[i] as affine; thread t takes t, t + threads, t + 2 threads...
extern "C" __global__ void __launch_bounds__(64) normalise(const Xyzz* points, u32 count, u32 threads, Affine* out) {
    u32 thread = fixed_thread();
    if (thread >= threads) return;
    Base product = Base::one();
    u32 last = thread;
    for (u32 i = thread; i < count; i += threads) {
        Base zzz = load(&points[i].zzz);
        store(&out[i].x, product);
        if (!is_zero(zzz)) product = mul(product, zzz);
        last = i;
    }
    Base inverted = inverse(product);
    for (u32 i = last; thread < count; i -= threads) {
        Xyzz p = load(points + i);
        Affine q = {Base::zero(), Base::zero()};
        if (!is_zero(p.zzz)) {
            Base by_zzz = mul(inverted, load(&out[i].x)), by_z = mul(p.zz, by_zzz);
            inverted = mul(inverted, p.zzz);
            q.x = mul(p.x, sqr(by_z)), q.y = mul(p.y, by_zzz);
        }
        store(out + i, q);
        if (i == thread) break;
    }
}
