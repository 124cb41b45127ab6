// Number-theoretic transforms of 2^3 to 2^27 elements of Fr, in place.
//
// ntt_dif_*: natural order in, bit-reversed out (decimation in frequency, Gentleman-Sande), root w or w^-1.
// ntt_dit_*: bit-reversed in, natural out (decimation in time, Cooley-Tukey), root w. Inverse then forward therefore
//   needs no reversal. A scale multiplies the bit-reversed side: g^i as the first DIT pass loads, g^-i / n or 1 / n as the
//   last DIF pass stores, i being the coefficient's index.
// Range: every element < r, in and out, Montgomery form.
// One launch is a pass: `bits` index bits from bit `low` up, as steps of radix 2^E in registers (E = 3, or 2 where the
//   transform is too small to fill the chip) with shared memory between steps. A tile is 2^bits values of those bits
//   times 2^group neighbours (low > 0), or consecutive elements (low = 0, group = 0).
// Launch: grid = n / 2^tile, block = 2^(tile - E) threads, dynamic shared memory 36 bytes an element of the tile.
// Cost: a radix-8 step is 4 products inside (w_8 and w_8^3 act on a sum and a difference: 4 instead of 5; Winograd 1978)
//   and 7 by twiddles on 8 elements, so 2^24 takes 10.1 n products; each pass reads and writes n elements once.
// Twiddles: table[e] = w^e, e < n, made by `powers` of pointwise.cu; the inverse reads it backwards.
// Python caller: loader.Kernels.ntt.
#include "field.cuh"

struct Tile {  // padded by one slot in eight; halves of an element in two planes: conflict-free 16-byte accesses
    uint4 *low, *high;
    DEV u32 slot(u32 t) { return t + (t >> 3); }
    DEV Fr get(const Tile& tile, u32 t) {
        uint4 a = tile.low[slot(t)], b = tile.high[slot(t)];
        return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    }
    DEV void put(const Tile& tile, u32 t, const Fr& x) {
        tile.low[slot(t)] = {x.v[0], x.v[1], x.v[2], x.v[3]};
        tile.high[slot(t)] = {x.v[4], x.v[5], x.v[6], x.v[7]};
    }
};

// ---- Transforms of 2, 4 and 8 values in registers, natural order on both sides
template <bool INVERSE> struct Roots {
    DEV Fr pick(const u32 (&f)[8], const u32 (&i)[8]) {
        Fr r;
        UNROLL for (int k = 0; k < 8; k++) r.v[k] = INVERSE ? i[k] : f[k];
        return r;
    }
    DEV Fr w4() { constexpr u32 f[8] = FORWARD_W4, i[8] = INVERSE_W4; return pick(f, i); }
    DEV Fr sum() { constexpr u32 f[8] = FORWARD_SUM, i[8] = INVERSE_SUM; return pick(f, i); }
    DEV Fr difference() { constexpr u32 f[8] = FORWARD_DIFFERENCE, i[8] = INVERSE_DIFFERENCE; return pick(f, i); }
};
template <bool INVERSE> DEV void dft4(Fr& x0, Fr& x1, Fr& x2, Fr& x3) {
    Fr a = add(x0, x2), b = add(x1, x3), c = sub(x0, x2), d = mul(Roots<INVERSE>::w4(), sub(x1, x3));
    x0 = add(a, b), x1 = add(c, d), x2 = sub(a, b), x3 = sub(c, d);
}
template <bool INVERSE, int BITS> DEV void dft(Fr* x) {
    if constexpr (BITS == 1) {
        Fr a = x[0], b = x[1];
        x[0] = add(a, b), x[1] = sub(a, b);
    } else if constexpr (BITS == 2) {
        dft4<INVERSE>(x[0], x[1], x[2], x[3]);
    } else {
        Fr y0 = sub(x[0], x[4]), y1 = sub(x[1], x[5]), y2 = sub(x[2], x[6]), y3 = sub(x[3], x[7]);
        Fr e0 = add(x[0], x[4]), e1 = add(x[1], x[5]), e2 = add(x[2], x[6]), e3 = add(x[3], x[7]);
        dft4<INVERSE>(e0, e1, e2, e3);
        x[0] = e0, x[2] = e1, x[4] = e2, x[6] = e3;
        Fr turned = mul(Roots<INVERSE>::w4(), y2);
        Fr s = mul(Roots<INVERSE>::sum(), add_lazy(y1, y3)), d = mul(Roots<INVERSE>::difference(), sub(y1, y3));
        Fr p = add(y0, turned), m = sub(y0, turned), u = add(s, d), v = sub(s, d);
        x[1] = add(p, u), x[5] = sub(p, u), x[3] = add(m, v), x[7] = sub(m, v);
    }
}

// ---- A step: BITS index bits from tile bit q up, on 2^E elements a thread (2^(E - BITS) transforms side by side).
// `below` is the part of the global index under the step's bits, `shift` = log2 n - (position of the step's top bit + 1).
template <int E, int BITS, bool DIT, bool INVERSE>
DEV void step(const Tile& tile, const Fr* twiddles, u32 q, u32 below, u32 shift, u32 mask) {
    constexpr int SIZE = 1 << E, RADIX = 1 << BITS;
    u32 first = (threadIdx.x >> q) << (q + E) | (threadIdx.x & ((1u << q) - 1));
    constexpr u32 place[3][8] = {{0, 1}, {0, 2, 1, 3}, {0, 4, 2, 6, 1, 5, 3, 7}};  // bit reversal of BITS bits
    UNROLL for (int part = 0; part < SIZE; part += RADIX) {
        Fr x[RADIX];
        UNROLL for (int k = 0; k < RADIX; k++) {  // k: the exponent's multiple, on the reversed side at place[k]
            x[k] = Tile::get(tile, first + ((part + (DIT ? place[BITS - 1][k] : k)) << q));
        }
        if (DIT && below != ~0u) {
            UNROLL for (int k = 1; k < RADIX; k++) {
                u32 e = (below * k) << shift;
                x[k] = mul(load(twiddles + (INVERSE ? (0 - e) & mask : e)), x[k]);
            }
        }
        dft<INVERSE, BITS>(x);
        if (!DIT && below != ~0u) {
            UNROLL for (int k = 1; k < RADIX; k++) {
                u32 e = (below * k) << shift;
                x[k] = mul(load(twiddles + (INVERSE ? (0 - e) & mask : e)), x[k]);
            }
        }
        UNROLL for (int k = 0; k < RADIX; k++) {
            Tile::put(tile, first + ((part + (DIT ? k : place[BITS - 1][k])) << q), x[k]);
        }
    }
}

struct Pass {
    u32 log2_size, low, bits, group, tile;  // logarithms: transform, first index bit, bits of this pass, neighbours, tile
};

// the global index of place t of this block's tile
DEV u64 global_index(const Pass& pass, u32 t) {
    if (pass.low == 0) return (u64)blockIdx.x << pass.tile | t;
    u32 neighbours = pass.low - pass.group, low = blockIdx.x & ((1u << neighbours) - 1), high = blockIdx.x >> neighbours;
    return (u64)high << (pass.low + pass.bits) | (u64)(t >> pass.group) << pass.low | low << pass.group
           | (t & ((1u << pass.group) - 1));
}
// value * scale of the coefficient at bit-reversed index p: one factor, or low and high part of a power
DEV Fr scaled(const Fr& value, const Fr* low, const Fr* high, u32 split, u64 p, u32 log2_size) {
    if (!high) return mul(load(low), value);
    u32 i = __brev((u32)p) >> (32 - log2_size);
    return mul(mul(load(low + (i & ((1u << split) - 1))), load(high + (i >> split))), value);
}

template <int E, bool DIT, bool INVERSE>
DEV void transform(Fr* values, const Fr* twiddles, const Pass& pass, const Fr* scale_low, const Fr* scale_high, u32 split,
                   uint4* shared) {
    Tile tile = {shared, shared + Tile::slot(1u << pass.tile)};
    u32 mask = (u32)((1ull << pass.log2_size) - 1);
    for (u32 t = threadIdx.x; t < 1u << pass.tile; t += blockDim.x) {
        u64 p = global_index(pass, t);
        Fr x = load(values + p);
        if (DIT && scale_low) x = scaled(x, scale_low, scale_high, split, p, pass.log2_size);
        Tile::put(tile, t, x);
    }
    u32 partial = pass.bits % E, place = global_index(pass, 0) & ((1u << pass.low) - 1);  // of the index below `low`
    for (u32 done = 0; done < pass.bits;) {  // DIF takes bits from the top, DIT from the bottom; the lowest may be fewer
        bool odd_step = partial && (DIT ? done == 0 : done + partial == pass.bits);
        u32 width = odd_step ? partial : E, at = DIT ? done : pass.bits - done - width, q = pass.group + at;
        u32 shift = pass.log2_size - (pass.low + at + width), t = threadIdx.x & ((1u << q) - 1);
        u32 below = (t >> pass.group) << pass.low | place | (t & ((1u << pass.group) - 1));
        if (pass.low + at == 0) below = ~0u;  // the transform's innermost step has no twiddles
        __syncthreads();
        if (width == 3) {
            if constexpr (E == 3) step<E, 3, DIT, INVERSE>(tile, twiddles, q, below, shift, mask);
        } else if (width == 2) {
            step<E, 2, DIT, INVERSE>(tile, twiddles, q, below, shift, mask);
        } else {
            step<E, 1, DIT, INVERSE>(tile, twiddles, q, below, shift, mask);
        }
        done += width;
    }
    __syncthreads();
    for (u32 t = threadIdx.x; t < 1u << pass.tile; t += blockDim.x) {
        u64 p = global_index(pass, t);
        Fr x = Tile::get(tile, t);
        if (!DIT && scale_low) x = scaled(x, scale_low, scale_high, split, p, pass.log2_size);
        store(values + p, x);
    }
}

#define NTT(name, E, DIT, INVERSE)                                                                                        \
    extern "C" __global__ void __launch_bounds__(1 << (10 - E)) name(                                                     \
        Fr* values, const Fr* twiddles, const Fr* scale_low, const Fr* scale_high, u32 split, u32 log2_size, u32 low,     \
        u32 bits, u32 group, u32 tile) {                                                                                  \
        DYNAMIC_SHARED(uint4, shared);                                                                                    \
        Pass pass = {log2_size, low, bits, group, tile};                                                                  \
        transform<E, DIT, INVERSE>(values, twiddles, pass, scale_low, scale_high, split, shared);                         \
    }
NTT(ntt_dif_forward_8, 3, false, false)
NTT(ntt_dif_inverse_8, 3, false, true)
NTT(ntt_dit_forward_8, 3, true, false)
NTT(ntt_dif_forward_4, 2, false, false)
NTT(ntt_dif_inverse_4, 2, false, true)
NTT(ntt_dit_forward_4, 2, true, false)
