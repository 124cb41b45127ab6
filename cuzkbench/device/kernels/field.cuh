// Montgomery arithmetic in Fr (8 limbs of 32 bits), Fp (12 limbs) and Fp2 = Fp[u]/(u^2 + 1), all in registers.
//
// Layout: limbs little-endian, Montgomery form (R = 2^256 and 2^384), every stored value < modulus.
// Method: products are taken row by row into two accumulators, one for limbs at even and one for limbs at odd
//   positions, so that every 32x32 -> 64 product lands on an aligned register pair (one IMAD.WIDE) and one carry chain
//   runs through each; reduction is interleaved (coarsely integrated operand scanning; Koc, Acar, Kaliski 1996).
//   After a row the two swap roles, since dividing by 2^32 shifts positions by one.
// Cost in wide multiply-adds: Fr product 112 (r = 1 mod 2^32 and 2^32 - 1 above it make two of eight free), Fp product
//   288 + 12 narrow, Fp square 222 + 12, Fp2 product 720 + 24 (Karatsuba over unreduced products), square 576 + 24.
// The same text compiles for the host: the carry flag becomes a variable, and a test runs it against Python's ints.
// Python caller: none, every kernel includes this.
#pragma once
#include "constants.cuh"

typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef __CUDACC__
#define DEV static __device__ __forceinline__
#define CALL static __device__ __noinline__
#define UNROLL _Pragma("unroll")
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#else
#define DEV static inline
#define CALL static
#define UNROLL
#endif

// ---- Carry chains. Each statement is volatile, so that the flag passes from one to the next in program order.
#ifdef __CUDACC__
#define CHAIN2(name, ptx) \
    DEV u32 name(u32 a, u32 b) { u32 d; asm volatile(ptx " %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); return d; }
CHAIN2(add_cc, "add.cc.u32")
CHAIN2(addc_cc, "addc.cc.u32")
CHAIN2(addc, "addc.u32")
CHAIN2(sub_cc, "sub.cc.u32")
CHAIN2(subc_cc, "subc.cc.u32")
CHAIN2(subc, "subc.u32")
DEV void mul_pair(u32& lo, u32& hi, u32 a, u32 b) {
    asm volatile("mul.lo.u32 %0, %2, %3; mul.hi.u32 %1, %2, %3;" : "=&r"(lo), "=r"(hi) : "r"(a), "r"(b));
}
// (lo, hi) = a * b + (x, y), starting a chain; the carry out stays in the flag
DEV void mad_pair(u32& lo, u32& hi, u32 a, u32 b, u32 x, u32 y) {
    asm volatile("mad.lo.cc.u32 %0, %2, %3, %4; madc.hi.cc.u32 %1, %2, %3, %5;"
                 : "=&r"(lo), "=r"(hi) : "r"(a), "r"(b), "r"(x), "r"(y));
}
// (lo, hi) = a * b + (x, y) + carry
DEV void madc_pair(u32& lo, u32& hi, u32 a, u32 b, u32 x, u32 y) {
    asm volatile("madc.lo.cc.u32 %0, %2, %3, %4; madc.hi.cc.u32 %1, %2, %3, %5;"
                 : "=&r"(lo), "=r"(hi) : "r"(a), "r"(b), "r"(x), "r"(y));
}
#else
static thread_local u32 carry_flag;  // as PTX has it: 1 after a carry of an addition, 1 after a borrow
DEV u32 chain_add(u64 a, u64 b, u64 c) { u64 s = a + b + c; carry_flag = (u32)(s >> 32); return (u32)s; }
DEV u32 chain_sub(u64 a, u64 b, u64 c) { u64 s = a - b - c; carry_flag = (u32)(s >> 63); return (u32)s; }
DEV u32 add_cc(u32 a, u32 b) { return chain_add(a, b, 0); }
DEV u32 addc_cc(u32 a, u32 b) { return chain_add(a, b, carry_flag); }
DEV u32 addc(u32 a, u32 b) { return a + b + carry_flag; }
DEV u32 sub_cc(u32 a, u32 b) { return chain_sub(a, b, 0); }
DEV u32 subc_cc(u32 a, u32 b) { return chain_sub(a, b, carry_flag); }
DEV u32 subc(u32 a, u32 b) { return a - b - carry_flag; }
DEV void mul_pair(u32& lo, u32& hi, u32 a, u32 b) { u64 t = (u64)a * b; lo = (u32)t; hi = (u32)(t >> 32); }
DEV void madc_pair(u32& lo, u32& hi, u32 a, u32 b, u32 x, u32 y) {
    u64 t = (u64)a * b;
    u32 low = chain_add((u32)t, x, carry_flag);
    hi = chain_add(t >> 32, y, carry_flag);
    lo = low;
}
DEV void mad_pair(u32& lo, u32& hi, u32 a, u32 b, u32 x, u32 y) { carry_flag = 0; madc_pair(lo, hi, a, b, x, y); }
#endif

// ---- Parameters of the two prime fields; limb(i) of a modulus is a literal once the loop around it is unrolled.
struct FrParams {
    static constexpr int N = 8;
    static constexpr bool SPECIAL = true;  // r = 1 - 2^32 mod 2^64
    static constexpr u32 NEG_INV = FR_NEG_INV;
    DEV u32 limb(int i) { constexpr u32 m[N] = FR_MODULUS; return m[i]; }
    DEV u32 one(int i) { constexpr u32 m[N] = FR_ONE; return m[i]; }
    DEV u32 r2(int i) { constexpr u32 m[N] = FR_R2; return m[i]; }
};
struct FpParams {
    static constexpr int N = 12;
    static constexpr bool SPECIAL = false;
    static constexpr u32 NEG_INV = FP_NEG_INV;
    DEV u32 limb(int i) { constexpr u32 m[N] = FP_MODULUS; return m[i]; }
    DEV u32 one(int i) { constexpr u32 m[N] = FP_ONE; return m[i]; }
    DEV u32 r2(int i) { constexpr u32 m[N] = FP_R2; return m[i]; }
};

// ---- Rows. E holds limbs 0..N-1 of a running sum, O limbs 1..N of it; E[0] is the limb that reduction clears.
// No chain overflows: the top product of O meets at most three addends (a, c, modulus) whose top limbs sum < 2^32.

// O += x[1], x[3]... * y; then E += x[0], x[2]... * y, whose carry is limb N
template <int N> DEV void add_row(u32* E, u32* O, const u32* x, u32 y) {
    mad_pair(O[0], O[1], x[1], y, O[0], O[1]);
    UNROLL for (int j = 2; j < N; j += 2) madc_pair(O[j], O[j + 1], x[j + 1], y, O[j], O[j + 1]);
    mad_pair(E[0], E[1], x[0], y, E[0], E[1]);
    UNROLL for (int j = 2; j < N; j += 2) madc_pair(E[j], E[j + 1], x[j], y, E[j], E[j + 1]);
    O[N - 1] = addc(O[N - 1], 0);
}
// After a reduction E[0] = 0: shift by one limb (the caller swaps E and O) and add x * y in the same chains.
template <int N> DEV void shift_add_row(u32* E, u32* O, const u32* x, u32 y) {
    E[0] = add_cc(E[0], O[1]);
    UNROLL for (int j = 0; j < N - 2; j += 2) madc_pair(O[j], O[j + 1], x[j + 1], y, O[j + 2], O[j + 3]);
    madc_pair(O[N - 2], O[N - 1], x[N - 1], y, 0, 0);
    mad_pair(E[0], E[1], x[0], y, E[0], E[1]);
    UNROLL for (int j = 2; j < N; j += 2) madc_pair(E[j], E[j + 1], x[j], y, E[j], E[j + 1]);
    O[N - 1] = addc(O[N - 1], 0);
}
// Add q * modulus with q chosen so that E[0] becomes 0.
template <class P> DEV void reduce_row(u32* E, u32* O) {
    constexpr int N = P::N;
    if (P::SPECIAL) {  // q = -E[0]; q * (1 + (2^32 - 1) 2^32) needs no product
        u32 t = E[0], q = sub_cc(0, t), top = subc(q, 0);
        O[0] = add_cc(O[0], t);
        O[1] = addc_cc(O[1], top);
        UNROLL for (int j = 2; j < N; j += 2) madc_pair(O[j], O[j + 1], q, P::limb(j + 1), O[j], O[j + 1]);
        E[0] = add_cc(t, q);
        E[1] = addc_cc(E[1], 0);
        UNROLL for (int j = 2; j < N; j += 2) madc_pair(E[j], E[j + 1], q, P::limb(j), E[j], E[j + 1]);
    } else {
        u32 q = E[0] * P::NEG_INV;
        mad_pair(O[0], O[1], q, P::limb(1), O[0], O[1]);
        UNROLL for (int j = 2; j < N; j += 2) madc_pair(O[j], O[j + 1], q, P::limb(j + 1), O[j], O[j + 1]);
        mad_pair(E[0], E[1], q, P::limb(0), E[0], E[1]);
        UNROLL for (int j = 2; j < N; j += 2) madc_pair(E[j], E[j + 1], q, P::limb(j), E[j], E[j + 1]);
    }
    O[N - 1] = addc(O[N - 1], 0);
}

// ---- A prime field element.
template <class P> struct Prime {
    static constexpr int N = P::N;
    u32 v[N];

    DEV Prime zero() { Prime r; UNROLL for (int i = 0; i < N; i++) r.v[i] = 0; return r; }
    DEV Prime one() { Prime r; UNROLL for (int i = 0; i < N; i++) r.v[i] = P::one(i); return r; }
};
typedef Prime<FrParams> Fr;
typedef Prime<FpParams> Fp;

template <class P> DEV bool is_zero(const Prime<P>& a) {
    u32 any = 0;
    UNROLL for (int i = 0; i < P::N; i++) any |= a.v[i];
    return any == 0;
}
template <class P> DEV Prime<P> select(bool first, const Prime<P>& a, const Prime<P>& b) {
    Prime<P> r;
    UNROLL for (int i = 0; i < P::N; i++) r.v[i] = first ? a.v[i] : b.v[i];
    return r;
}
// a < 2 * modulus to a < modulus
template <class P> DEV Prime<P> trim(const Prime<P>& a) {
    Prime<P> t;
    t.v[0] = sub_cc(a.v[0], P::limb(0));
    UNROLL for (int i = 1; i < P::N; i++) t.v[i] = subc_cc(a.v[i], P::limb(i));
    return select(subc(0, 0) != 0, a, t);
}
// a + b without reduction, < 2 * modulus: fits, since Fr leaves one spare bit and Fp three
template <class P> DEV Prime<P> add_lazy(const Prime<P>& a, const Prime<P>& b) {
    Prime<P> r;
    r.v[0] = add_cc(a.v[0], b.v[0]);
    UNROLL for (int i = 1; i < P::N - 1; i++) r.v[i] = addc_cc(a.v[i], b.v[i]);
    r.v[P::N - 1] = addc(a.v[P::N - 1], b.v[P::N - 1]);
    return r;
}
template <class P> DEV Prime<P> add(const Prime<P>& a, const Prime<P>& b) { return trim(add_lazy(a, b)); }
template <class P> DEV Prime<P> sub(const Prime<P>& a, const Prime<P>& b) {
    Prime<P> r;
    r.v[0] = sub_cc(a.v[0], b.v[0]);
    UNROLL for (int i = 1; i < P::N; i++) r.v[i] = subc_cc(a.v[i], b.v[i]);
    u32 borrow = subc(0, 0);  // all ones or zero
    r.v[0] = add_cc(r.v[0], P::limb(0) & borrow);
    UNROLL for (int i = 1; i < P::N - 1; i++) r.v[i] = addc_cc(r.v[i], P::limb(i) & borrow);
    r.v[P::N - 1] = addc(r.v[P::N - 1], P::limb(P::N - 1) & borrow);
    return r;
}
// modulus - a, in 1..modulus: an operand of a product only
template <class P> DEV Prime<P> neg_lazy(const Prime<P>& a) {
    Prime<P> r;
    r.v[0] = sub_cc(P::limb(0), a.v[0]);
    UNROLL for (int i = 1; i < P::N - 1; i++) r.v[i] = subc_cc(P::limb(i), a.v[i]);
    r.v[P::N - 1] = subc(P::limb(P::N - 1), a.v[P::N - 1]);
    return r;
}
template <class P> DEV Prime<P> neg(const Prime<P>& a) { return select(is_zero(a), a, neg_lazy(a)); }
template <class P> DEV Prime<P> negate_if(const Prime<P>& a, bool negative) { return select(negative, neg(a), a); }
template <class P> DEV Prime<P> twice(const Prime<P>& a) { return add(a, a); }
template <class P> DEV bool equal(const Prime<P>& a, const Prime<P>& b) {
    u32 any = 0;
    UNROLL for (int i = 0; i < P::N; i++) any |= a.v[i] ^ b.v[i];
    return any == 0;
}

// the sum of E and O, one limb lower: < 2 * modulus
template <class P> DEV Prime<P> merge(const u32* E, const u32* O) {
    Prime<P> r;
    r.v[0] = add_cc(E[1], O[0]);
    UNROLL for (int i = 1; i < P::N - 1; i++) r.v[i] = addc_cc(E[i + 1], O[i]);
    r.v[P::N - 1] = addc(0, O[P::N - 1]);
    return r;
}
// a * b / R < 2 * modulus; a < modulus, b may be any N-limb value
template <class P> DEV Prime<P> mul_lazy(const Prime<P>& a, const Prime<P>& b) {
    constexpr int N = P::N;
    u32 X[N], Y[N];
    UNROLL for (int j = 0; j < N; j += 2) {
        mul_pair(X[j], X[j + 1], a.v[j], b.v[0]);
        mul_pair(Y[j], Y[j + 1], a.v[j + 1], b.v[0]);
    }
    reduce_row<P>(X, Y);
    UNROLL for (int i = 1; i < N; i += 2) {
        shift_add_row<N>(Y, X, a.v, b.v[i]);
        reduce_row<P>(Y, X);
        if (i + 1 < N) {
            shift_add_row<N>(X, Y, a.v, b.v[i + 1]);
            reduce_row<P>(X, Y);
        }
    }
    return merge<P>(Y, X);
}
template <class P> DEV Prime<P> mul(const Prime<P>& a, const Prime<P>& b) { return trim(mul_lazy(a, b)); }
DEV Fr sqr(const Fr& a) { return mul(a, a); }

// (a * b + c * d) / R with one reduction; Fp only: the sum needs its spare bits
DEV Fp dot(const Fp& a, const Fp& b, const Fp& c, const Fp& d) {
    constexpr int N = Fp::N;
    u32 X[N], Y[N];
    UNROLL for (int j = 0; j < N; j += 2) {
        mul_pair(X[j], X[j + 1], a.v[j], b.v[0]);
        mul_pair(Y[j], Y[j + 1], a.v[j + 1], b.v[0]);
    }
    add_row<N>(X, Y, c.v, d.v[0]);
    reduce_row<FpParams>(X, Y);
    UNROLL for (int i = 1; i < N; i += 2) {
        shift_add_row<N>(Y, X, a.v, b.v[i]);
        add_row<N>(Y, X, c.v, d.v[i]);
        reduce_row<FpParams>(Y, X);
        if (i + 1 < N) {
            shift_add_row<N>(X, Y, a.v, b.v[i + 1]);
            add_row<N>(X, Y, c.v, d.v[i + 1]);
            reduce_row<FpParams>(X, Y);
        }
    }
    return trim(merge<FpParams>(Y, X));
}

// ---- Unreduced products of 24 limbs.
struct Wide {
    u32 v[2 * Fp::N];
};
// Chains through one array of pairs: acc[at], acc[at+1]... += x[0], x[2]... * y over `count` pairs, carry into the next
template <int COUNT> DEV void wide_row(u32* acc, const u32* x, u32 y) {
    mad_pair(acc[0], acc[1], x[0], y, acc[0], acc[1]);
    UNROLL for (int j = 1; j < COUNT; j++) {
        madc_pair(acc[2 * j], acc[2 * j + 1], x[2 * j], y, acc[2 * j], acc[2 * j + 1]);
    }
    acc[2 * COUNT] = addc(acc[2 * COUNT], 0);
}
// even[k] has position k, odd[k] position k + 1
DEV Wide wide_merge(const u32* even, const u32* odd) {
    constexpr int N = Fp::N;
    Wide r;
    r.v[0] = even[0];
    r.v[1] = add_cc(even[1], odd[0]);
    UNROLL for (int k = 2; k < 2 * N - 1; k++) r.v[k] = addc_cc(even[k], odd[k - 1]);
    r.v[2 * N - 1] = addc(even[2 * N - 1], odd[2 * N - 2]);
    return r;
}
// a * b for a, b < 4 * modulus: 144 products
DEV Wide mul_wide(const Fp& a, const Fp& b) {
    constexpr int N = Fp::N;
    u32 even[2 * N + 2], odd[2 * N + 2];
    UNROLL for (int k = 0; k < 2 * N + 2; k++) even[k] = odd[k] = 0;
    UNROLL for (int j = 0; j < N; j += 2) {
        mul_pair(even[j], even[j + 1], a.v[j], b.v[0]);
        mul_pair(odd[j], odd[j + 1], a.v[j + 1], b.v[0]);
    }
    UNROLL for (int i = 1; i < N; i += 2) {
        wide_row<N / 2>(even + i + 1, a.v + 1, b.v[i]);
        wide_row<N / 2>(odd + i - 1, a.v, b.v[i]);
        if (i + 1 < N) {
            wide_row<N / 2>(even + i + 1, a.v, b.v[i + 1]);
            wide_row<N / 2>(odd + i + 1, a.v + 1, b.v[i + 1]);
        }
    }
    return wide_merge(even, odd);
}
template <int I> struct SquareRows {  // row I: a[I] * a[j] for j > I
    DEV void run(u32* even, u32* odd, const u32* a) {
        constexpr int LEFT = Fp::N - 1 - I, ODD = (LEFT + 1) / 2, EVEN = LEFT / 2;  // j = I+1, I+3... have odd positions
        wide_row<ODD>(odd + 2 * I, a + I + 1, a[I]);
        if constexpr (EVEN > 0) wide_row<EVEN>(even + 2 * I + 2, a + I + 2, a[I]);
        SquareRows<I + 1>::run(even, odd, a);
    }
};
template <> struct SquareRows<Fp::N - 1> {
    DEV void run(u32*, u32*, const u32*) {}
};
// a * a: 66 products off the diagonal, doubled, and 12 on it
DEV Wide sqr_wide(const Fp& a) {
    constexpr int N = Fp::N;
    u32 even[2 * N + 2], odd[2 * N + 2];
    UNROLL for (int k = 0; k < 2 * N + 2; k++) even[k] = odd[k] = 0;
    SquareRows<0>::run(even, odd, a.v);
    Wide r = wide_merge(even, odd);
    r.v[0] = add_cc(r.v[0], r.v[0]);
    UNROLL for (int k = 1; k < 2 * N; k++) r.v[k] = addc_cc(r.v[k], r.v[k]);
    mad_pair(r.v[0], r.v[1], a.v[0], a.v[0], r.v[0], r.v[1]);
    UNROLL for (int j = 1; j < N; j++) madc_pair(r.v[2 * j], r.v[2 * j + 1], a.v[j], a.v[j], r.v[2 * j], r.v[2 * j + 1]);
    return r;
}
DEV Wide add_wide(const Wide& a, const Wide& b) {
    Wide r;
    r.v[0] = add_cc(a.v[0], b.v[0]);
    UNROLL for (int k = 1; k < 2 * Fp::N; k++) r.v[k] = addc_cc(a.v[k], b.v[k]);
    return r;
}
// a - b, plus modulus * R where that is negative: stays < modulus * R and the same residue
DEV Wide sub_wide(const Wide& a, const Wide& b) {
    constexpr int N = Fp::N;
    Wide r;
    r.v[0] = sub_cc(a.v[0], b.v[0]);
    UNROLL for (int k = 1; k < 2 * N; k++) r.v[k] = subc_cc(a.v[k], b.v[k]);
    u32 borrow = subc(0, 0);
    r.v[N] = add_cc(r.v[N], FpParams::limb(0) & borrow);
    UNROLL for (int k = 1; k < N; k++) r.v[N + k] = addc_cc(r.v[N + k], FpParams::limb(k) & borrow);
    return r;
}
// t / R for t < modulus * R: 144 products and 12 narrow ones
DEV Fp reduce_wide(const Wide& t) {
    constexpr int N = Fp::N;
    u32 X[N], Y[N];
    UNROLL for (int k = 0; k < N; k++) X[k] = t.v[k], Y[k] = 0;
    reduce_row<FpParams>(X, Y);
    UNROLL for (int i = 1; i < N; i++) {  // E and O swap every row
        u32 *E = i & 1 ? Y : X, *O = i & 1 ? X : Y;
        E[0] = add_cc(E[0], O[1]);
        u32 q = E[0] * FpParams::NEG_INV;  // a plain product leaves the flag alone
        UNROLL for (int j = 0; j < N - 2; j += 2) {
            madc_pair(O[j], O[j + 1], q, FpParams::limb(j + 1), O[j + 2], O[j + 3]);
        }
        madc_pair(O[N - 2], O[N - 1], q, FpParams::limb(N - 1), 0, 0);
        mad_pair(E[0], E[1], q, FpParams::limb(0), E[0], E[1]);
        UNROLL for (int j = 2; j < N; j += 2) madc_pair(E[j], E[j + 1], q, FpParams::limb(j), E[j], E[j + 1]);
        O[N - 1] = addc(O[N - 1], 0);
    }
    Fp low = merge<FpParams>(Y, X), high;
    UNROLL for (int k = 0; k < N; k++) high.v[k] = t.v[N + k];
    return trim(add_lazy(low, high));
}
DEV Fp sqr(const Fp& a) { return reduce_wide(sqr_wide(a)); }

// ---- Memory
#ifndef __CUDACC__
struct uint4 {
    u32 x, y, z, w;
};
#endif
// 16 bytes at a time; every element and point here is a multiple of that, at an aligned address
template <class T> DEV T load(const T* from) {
    T r;
    const uint4* q = reinterpret_cast<const uint4*>(from);
    u32* w = reinterpret_cast<u32*>(&r);
    UNROLL for (int i = 0; i < (int)(sizeof(T) / 16); i++) {
        uint4 t = q[i];
        w[4 * i] = t.x, w[4 * i + 1] = t.y, w[4 * i + 2] = t.z, w[4 * i + 3] = t.w;
    }
    return r;
}
template <class T> DEV void store(T* to, const T& value) {
    uint4* q = reinterpret_cast<uint4*>(to);
    const u32* w = reinterpret_cast<const u32*>(&value);
    UNROLL for (int i = 0; i < (int)(sizeof(T) / 16); i++) q[i] = {w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]};
}

// ---- Fp2
struct Fp2 {
    Fp c0, c1;
    DEV Fp2 zero() { return {Fp::zero(), Fp::zero()}; }
    DEV Fp2 one() { return {Fp::one(), Fp::zero()}; }
};
DEV bool is_zero(const Fp2& a) { return is_zero(a.c0) & is_zero(a.c1); }
DEV bool equal(const Fp2& a, const Fp2& b) { return equal(a.c0, b.c0) & equal(a.c1, b.c1); }
DEV Fp2 select(bool first, const Fp2& a, const Fp2& b) { return {select(first, a.c0, b.c0), select(first, a.c1, b.c1)}; }
DEV Fp2 add(const Fp2& a, const Fp2& b) { return {add(a.c0, b.c0), add(a.c1, b.c1)}; }
DEV Fp2 sub(const Fp2& a, const Fp2& b) { return {sub(a.c0, b.c0), sub(a.c1, b.c1)}; }
DEV Fp2 neg(const Fp2& a) { return {neg(a.c0), neg(a.c1)}; }
DEV Fp2 negate_if(const Fp2& a, bool negative) { return select(negative, neg(a), a); }
DEV Fp2 twice(const Fp2& a) { return add(a, a); }
// Karatsuba on unreduced products: all sums stay < 8 p^2 < p R. Calls, as about 1,100 instructions; r may be an operand.
CALL void mul_into(Fp2& r, const Fp2& a, const Fp2& b) {
    Wide t0 = mul_wide(a.c0, b.c0), t1 = mul_wide(a.c1, b.c1);
    Wide cross = mul_wide(add_lazy(a.c0, a.c1), add_lazy(b.c0, b.c1));
    r.c1 = reduce_wide(sub_wide(cross, add_wide(t0, t1)));
    r.c0 = reduce_wide(sub_wide(t0, t1));
}
CALL void sqr_into(Fp2& r, const Fp2& a) {  // (a0 + a1)(a0 - a1), 2 a0 a1
    Fp c0 = mul(sub(a.c0, a.c1), add_lazy(a.c0, a.c1));
    r.c1 = mul(a.c0, add_lazy(a.c1, a.c1));
    r.c0 = c0;
}
DEV Fp2 mul(const Fp2& a, const Fp2& b) { Fp2 r; mul_into(r, a, b); return r; }
DEV Fp2 sqr(const Fp2& a) { Fp2 r; sqr_into(r, a); return r; }
// r = a * b - c * d; a and c are used up where that saves memory
DEV void difference_of_products(Fp2& r, Fp2& a, const Fp2& b, Fp2& c, const Fp2& d) {
    mul_into(a, a, b);
    mul_into(c, c, d);
    r = sub(a, c);
}
DEV void mul_into(Fp& r, const Fp& a, const Fp& b) { r = mul(a, b); }
DEV void sqr_into(Fp& r, const Fp& a) { r = sqr(a); }
DEV void difference_of_products(Fp& r, const Fp& a, const Fp& b, const Fp& c, const Fp& d) {
    r = dot(a, b, neg_lazy(c), d);
}

// ---- Inverses by Fermat, a^(p-2): about 381 squares and 190 products; 0 gives 0. Used once a batch.
CALL Fp inverse(const Fp& a) {
    constexpr u32 borrow_free = FP_MODULUS_LOW - 2;  // p ends in ...aaab
    Fp r = Fp::one();
    for (int bit = 380; bit >= 0; bit--) {
        r = sqr(r);
        u32 word = borrow_free;
        UNROLL for (int k = 1; k < Fp::N; k++) word = (bit >> 5) == k ? FpParams::limb(k) : word;
        if (word >> (bit & 31) & 1) r = mul(r, a);
    }
    return r;
}
CALL Fp2 inverse(const Fp2& a) {
    Fp norm = inverse(add(sqr(a.c0), sqr(a.c1)));
    return {mul(a.c0, norm), mul(neg(a.c1), norm)};
}
