// Points of G1 (over Fp) and G2 (over Fp2): affine and XYZZ, which keeps ZZ = Z^2 and ZZZ = Z^3, x = X/ZZ, y = Y/ZZZ.
//
// Layout: affine x, y (96 or 192 bytes), infinity all zero bytes; XYZZ x, y, zz, zzz (192 or 384 bytes), infinity zz = 0.
// Cost: mixed addition 8 products and 2 squares, full addition 12 and 2, doubling 6 and 4; in Fp the last two products
//   of each share one reduction. Formulas: madd-2008-s, add-2008-s, dbl-2008-s-1 of the Explicit-Formulas Database.
// Equal, opposite and infinite operands are handled; the paths for equal points are calls, so that they cost no registers.
// Python caller: none, msm.cu and fixed_base.cu include this.
#pragma once
#include "field.cuh"

#ifdef POINT_G2
typedef Fp2 Base;
#else
typedef Fp Base;
#endif

struct Affine {
    Base x, y;
};
struct Xyzz {
    Base x, y, zz, zzz;
};

DEV bool is_infinity(const Affine& p) { return is_zero(p.x) & is_zero(p.y); }
DEV bool is_infinity(const Xyzz& p) { return is_zero(p.zz); }
DEV Xyzz infinity() { return {Base::zero(), Base::zero(), Base::zero(), Base::zero()}; }
DEV Xyzz widen(const Affine& p) {
    Base zz = select(is_infinity(p), Base::zero(), Base::one());
    return {p.x, p.y, zz, zz};
}

CALL Xyzz double_point(Xyzz a) {
    Base u = twice(a.y), v = sqr(u), w = mul(u, v), s = mul(a.x, v), xx = sqr(a.x), m = add(twice(xx), xx);
    Xyzz r;
    r.x = sub(sqr(m), twice(s));
    r.y = dot(m, sub(s, r.x), neg_factor(w), a.y);
    r.zz = mul(v, a.zz);
    r.zzz = mul(w, a.zzz);
    return r;
}

// a + p where neither is infinity; P and R are the differences of x and y over a common denominator
DEV Xyzz add_mixed(const Xyzz& a, const Affine& p) {
    Base P = sub(mul(p.x, a.zz), a.x), R = sub(mul(p.y, a.zzz), a.y);
    if (is_zero(P)) return is_zero(R) ? double_point(widen(p)) : infinity();
    Base PP = sqr(P), PPP = mul(P, PP), Q = mul(a.x, PP);
    Xyzz r;
    r.x = sub(sub(sqr(R), PPP), twice(Q));
    r.y = dot(R, sub(Q, r.x), neg_factor(a.y), PPP);
    r.zz = mul(a.zz, PP);
    r.zzz = mul(a.zzz, PPP);
    return r;
}

// a += b, any two points. A call: 14 products in line are about 5,000 instructions in G1.
CALL void add_into(Xyzz& a, const Xyzz& b) {
    if (is_infinity(b)) return;
    if (is_infinity(a)) {
        a = b;
        return;
    }
    Base U = mul(a.x, b.zz), S = mul(a.y, b.zzz);
    Base P = sub(mul(b.x, a.zz), U), R = sub(mul(b.y, a.zzz), S);
    if (is_zero(P)) {
        a = is_zero(R) ? double_point(b) : infinity();
        return;
    }
    Base PP = sqr(P), PPP = mul(P, PP), Q = mul(U, PP);
    a.x = sub(sub(sqr(R), PPP), twice(Q));
    a.y = dot(R, sub(Q, a.x), neg_factor(S), PPP);
    a.zz = mul(mul(a.zz, b.zz), PP);
    a.zzz = mul(mul(a.zzz, b.zzz), PPP);
}
