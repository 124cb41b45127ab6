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

// The group law works in place and names every intermediate value: in G2 each is 96 bytes of local memory, and the sum of
// all threads' must stay in the first-level cache. `into` forms may write over an operand.
CALL Xyzz double_point(Xyzz a) {
    Base u = twice(a.y), v, w, m;
    sqr_into(v, u);
    mul_into(w, u, v);
    mul_into(a.zz, a.zz, v);
    mul_into(a.zzz, a.zzz, w);
    mul_into(v, a.x, v);  // S
    sqr_into(u, a.x);
    m = add(twice(u), u);
    sqr_into(a.x, m);
    a.x = sub(a.x, twice(v));
    v = sub(v, a.x);
    difference_of_products(a.y, m, v, w, a.y);
    return a;
}

// a += p where neither is infinity; p is used up. P and R are the differences of x and y over a common denominator.
DEV void add_mixed(Xyzz& a, Affine& p) {
    Base &P = p.x, &R = p.y, t, q;
    mul_into(P, p.x, a.zz);
    P = sub(P, a.x);
    mul_into(R, p.y, a.zzz);
    R = sub(R, a.y);
    if (is_zero(P)) {
        a = is_zero(R) ? double_point(a) : infinity();
        return;
    }
    sqr_into(t, P);
    mul_into(a.zz, a.zz, t);
    mul_into(q, a.x, t);
    mul_into(t, t, P);
    mul_into(a.zzz, a.zzz, t);
    sqr_into(a.x, R);
    a.x = sub(sub(a.x, t), twice(q));
    q = sub(q, a.x);
    difference_of_products(a.y, R, q, a.y, t);
}

// a += b, any two points. A call: 14 products in line are about 5,000 instructions in G1.
CALL void add_into(Xyzz& a, const Xyzz& b) {
    if (is_infinity(b)) return;
    if (is_infinity(a)) {
        a = b;
        return;
    }
    Base u, s, p, r, t;
    mul_into(u, a.x, b.zz);
    mul_into(s, a.y, b.zzz);
    mul_into(p, b.x, a.zz);
    p = sub(p, u);
    mul_into(r, b.y, a.zzz);
    r = sub(r, s);
    if (is_zero(p)) {
        a = is_zero(r) ? double_point(b) : infinity();
        return;
    }
    sqr_into(t, p);
    mul_into(a.zz, a.zz, b.zz);
    mul_into(a.zz, a.zz, t);
    mul_into(u, u, t);
    mul_into(t, t, p);
    mul_into(a.zzz, a.zzz, b.zzz);
    mul_into(a.zzz, a.zzz, t);
    sqr_into(a.x, r);
    a.x = sub(sub(a.x, t), twice(u));
    u = sub(u, a.x);
    difference_of_products(a.y, r, u, s, t);
}
