// Elementwise steps, tables of powers, the spin kernel, and the kernels that measure the chip's ceilings.
//
// Layout: Fr in Montgomery form, < r in and out.
// Launch: one thread an element (grid-stride where said); spin and ceilings: as many blocks as fill the chip.
// Cost: quotient reads 96 bytes and writes 32 an element and does 2 products: bound by memory.
// Python caller: loader.Kernels.quotient, .to_montgomery, .from_montgomery, .gather, .nothing, .spin, .ceilings; powers: tables.
#include "field.cuh"

DEV u64 thread_index() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }

// a = (a * b - c) / Z on the coset; zinv is the constant 1 / Z
extern "C" __global__ void quotient(Fr* a, const Fr* b, const Fr* c, const Fr* zinv, u64 count) {
    u64 i = thread_index();
    if (i >= count) return;
    store(a + i, mul(load(zinv), sub(mul(load(a + i), load(b + i)), load(c + i))));
}
extern "C" __global__ void to_montgomery(Fr* values, u64 count) {
    u64 i = thread_index();
    if (i >= count) return;
    Fr r2;
    UNROLL for (int k = 0; k < Fr::N; k++) r2.v[k] = FrParams::r2(k);
    store(values + i, mul(r2, load(values + i)));
}
extern "C" __global__ void from_montgomery(Fr* values, u64 count) {
    u64 i = thread_index();
    if (i >= count) return;
    Fr one = Fr::zero();
    one.v[0] = 1;
    store(values + i, mul(one, load(values + i)));
}
// out[i] = values[index[i]]
extern "C" __global__ void gather(Fr* out, const Fr* values, const u32* index, u64 count) {
    u64 i = thread_index();
    if (i < count) store(out + i, load(values + index[i]));
}
// out[i] = scale * base^i, i < count; constants = {base, scale}. Each thread fills 64 places after one exponentiation.
extern "C" __global__ void powers(Fr* out, const Fr* constants, u64 count) {
    u64 first = thread_index() * 64;
    if (first >= count) return;
    Fr base = load(constants), power = load(constants + 1), square = base;
    for (u64 e = first; e; e >>= 1) {
        if (e & 1) power = mul(power, square);
        square = sqr(square);
    }
    for (u64 i = first; i < first + 64 && i < count; i++) {
        store(out + i, power);
        power = mul(power, base);
    }
}

// The first of a captured sequence: what a launch costs before its first kernel passes with this one.
extern "C" __global__ void nothing() {}

#ifdef __CUDACC__
DEV u64 now_ns() {
    u64 t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}
// Every block waits until `duration_ns` after its own start; blocks fill the chip, so that two spins run in turn.
extern "C" __global__ void __launch_bounds__(512) spin(u64 duration_ns) {
    u64 end = now_ns() + duration_ns;
    while (now_ns() < end) __nanosleep(2000);
}
// 8 independent chains of 32-bit multiply-adds a thread: 8 * rounds operations
extern "C" __global__ void ceiling_narrow(u32* out, u32 factor, u32 rounds) {
    u32 x[8];
    UNROLL for (int k = 0; k < 8; k++) x[k] = threadIdx.x + k;
    for (u32 r = 0; r < rounds; r += 16) {
        UNROLL for (int s = 0; s < 16; s++) UNROLL for (int k = 0; k < 8; k++) x[k] = x[k] * factor + k;
    }
    u32 any = 0;
    UNROLL for (int k = 0; k < 8; k++) any ^= x[k];
    if (any == 0x12345678) out[0] = any;
}
// 8 independent chains of 32x32 + 64 multiply-adds a thread
extern "C" __global__ void ceiling_wide(u32* out, u32 factor, u32 rounds) {
    u64 x[8];
    UNROLL for (int k = 0; k < 8; k++) x[k] = threadIdx.x + k;
    for (u32 r = 0; r < rounds; r += 16) {
        UNROLL for (int s = 0; s < 16; s++) UNROLL for (int k = 0; k < 8; k++) x[k] += (u64)(u32)x[k] * factor;
    }
    u64 any = 0;
    UNROLL for (int k = 0; k < 8; k++) any ^= x[k];
    if (any == 0x12345678) out[0] = (u32)any;
}
// `rounds` dependent Fp products a thread, in two chains
extern "C" __global__ void ceiling_fp(Fp* out, const Fp* in, u32 rounds) {
    Fp a = load(in), b = load(in + 1), c = a;
    a.v[0] ^= threadIdx.x;
    for (u32 r = 0; r < rounds; r += 2) a = mul(a, b), c = mul(c, b);
    if (is_zero(add(a, c))) store(out, a);
}
extern "C" __global__ void ceiling_fr(Fr* out, const Fr* in, u32 rounds) {
    Fr a = load(in), b = load(in + 1), c = a;
    a.v[0] ^= threadIdx.x;
    for (u32 r = 0; r < rounds; r += 2) a = mul(a, b), c = mul(c, b);
    if (is_zero(add(a, c))) store(out, a);
}
extern "C" __global__ void ceiling_copy(uint4* to, const uint4* from, u64 count) {
    for (u64 i = thread_index(); i < count; i += (u64)gridDim.x * blockDim.x) to[i] = from[i];
}
#endif
