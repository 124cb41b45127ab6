// Multi-scalar multiplication, sum of scalars[i] * bases[i], in G1 or (compiled with POINT_G2) in G2.
//
// In: scalars in Fr, Montgomery form, < r; bases affine. Out: for each window a few XYZZ points (see msm_reduce_next),
//   which the host combines (finish.py). Nothing else leaves the device; no step needs a count on the host.
// Method: Pippenger's buckets with signed digits of c bits (2^(c-1) buckets a window), scalars halved in range by
//   s -> r - s. (1) digits and bucket sizes, (2) exclusive scan, (3) scatter of base indices, grouped by bucket: zero digits
//   are dropped; (4) accumulate: a thread adds a fixed number of consecutive entries, whatever buckets they lie in, and
//   keeps a bucket that it saw wholly; pieces of buckets that straddle threads go to a list, which (5) merges the same way
//   in ever longer spans. So every distribution, all scalars equal included, costs the same number of additions a thread,
//   and ones need no path of their own. (6) Buckets are summed with their weights by running sums over short segments.
// Copies: `bases` may hold `copies` blocks of n points, block k being 2^(c * shared * k) times block 0; then only
//   `shared` = ceil(windows / copies) windows have buckets of their own.
// Launch: (1) n threads, (2) 256 a block on 4096 counters, (3) n x windows, (4) ceil(n * windows / span) threads, (5) span
//   grows by `fan`, (6) buckets / segment. All on one stream; scratch as loader.MsmPlan lays it out.
// Cost: n * windows mixed additions (2,712 wide multiply-adds in G1) + 2 full ones a bucket (3,912).
// Papers: Pippenger 1976; Bernstein, Doumen, Lange, Oosterwijk 2012 (signed digits, running sums).
// Python caller: loader.Kernels.msm.
#include "curve.cuh"

#ifndef ACCUMULATE_BLOCKS
#define ACCUMULATE_BLOCKS 3  // of 128 threads a multiprocessor: bounds the registers of the hot kernel
#endif
#define NONE 0xffffffffu
#define SIGN 0x80000000u

// ---- (1) digits[w * n + i] = magnitude and sign of digit w of scalar i; counts[bucket]++
extern "C" __global__ void msm_clear(u32* words, u64 count) {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) words[i] = 0;
}
extern "C" __global__ void __launch_bounds__(256) msm_digits(const Fr* scalars, u32 n, u32 c, u32 windows, u32 shared,
                                                             u32* digits, u32* counts) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    Fr one = Fr::zero(), s = i < n ? load(scalars + i) : Fr::zero();
    one.v[0] = 1;
    s = mul(one, s);  // out of Montgomery form
    Fr other = neg_lazy(s);
    u32 below = sub_cc(other.v[0], s.v[0]);
    UNROLL for (int k = 1; k < Fr::N; k++) below = subc_cc(other.v[k], s.v[k]);
    bool negative = subc(0, 0) != 0;
    if (negative) s = other;  // s < 2^254, so the last window takes no carry out
    u32 half = 1u << (c - 1), carry = 0;
    for (u32 w = 0; w < windows; w++) {
        u32 raw = (s.v[0] & (2 * half - 1)) + carry;
        UNROLL for (int k = 0; k < Fr::N - 1; k++) s.v[k] = s.v[k] >> c | s.v[k + 1] << (32 - c);
        s.v[Fr::N - 1] >>= c;
        carry = raw > half;
        u32 magnitude = carry ? 2 * half - raw : raw;
        u32 bucket = magnitude ? (w % shared) * half + magnitude - 1 : NONE;
        if (i < n) digits[(u64)w * n + i] = magnitude | (magnitude && (carry != (u32)negative) ? SIGN : 0);
        u32 peers = __match_any_sync(0xffffffffu, bucket);  // one atomic for equal digits of a warp: skewed scalars
        if (bucket != NONE && (threadIdx.x & 31) == __ffs(peers) - 1) atomicAdd(counts + bucket, __popc(peers));
    }
}

// ---- (2) exclusive scan of `count` counters in place: sums of 4096, scan of the sums, then each block its own
#define SCAN_ITEMS 16
DEV u32 block_scan(u32 value, u32* shared, u32& total) {  // inclusive, over blockDim.x threads
    shared[threadIdx.x] = value;
    __syncthreads();
    for (u32 step = 1; step < blockDim.x; step *= 2) {
        u32 add = threadIdx.x >= step ? shared[threadIdx.x - step] : 0;
        __syncthreads();
        shared[threadIdx.x] += add;
        __syncthreads();
    }
    u32 result = shared[threadIdx.x];
    total = shared[blockDim.x - 1];
    __syncthreads();
    return result;
}
extern "C" __global__ void __launch_bounds__(256) msm_scan_blocks(const u32* counts, u32 count, u32* sums) {
    __shared__ u32 shared[256];
    u32 sum = 0, total;
    for (u32 k = 0; k < SCAN_ITEMS; k++) {
        u32 i = (blockIdx.x * SCAN_ITEMS + k) * blockDim.x + threadIdx.x;
        if (i < count) sum += counts[i];
    }
    block_scan(sum, shared, total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}
extern "C" __global__ void __launch_bounds__(1024) msm_scan_sums(u32* sums, u32 count) {  // one block
    __shared__ u32 shared[1024];
    u32 base = 0, total;
    for (u32 first = 0; first < count; first += blockDim.x) {
        u32 i = first + threadIdx.x, value = i < count ? sums[i] : 0;
        u32 sum = block_scan(value, shared, total);
        if (i < count) sums[i] = base + sum - value;
        base += total;
    }
}
extern "C" __global__ void __launch_bounds__(256) msm_scan_apply(u32* counts, u32 count, const u32* sums) {
    __shared__ u32 shared[256];
    u32 base = sums[blockIdx.x], total;
    for (u32 k = 0; k < SCAN_ITEMS; k++) {
        u32 i = (blockIdx.x * SCAN_ITEMS + k) * blockDim.x + threadIdx.x, value = i < count ? counts[i] : 0;
        u32 sum = block_scan(value, shared, total);
        if (i < count) counts[i] = base + sum - value;
        base += total;
    }
}

// ---- (3) entries, grouped by bucket: index of a base and the sign. Afterwards ends[bucket] is the end of its group.
extern "C" __global__ void __launch_bounds__(256) msm_scatter(const u32* digits, u32 n, u32 c, u32 shared, u32* ends,
                                                              u32* entries) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x, w = blockIdx.y, digit = i < n ? digits[(u64)w * n + i] : 0;
    u32 magnitude = digit & ~SIGN, lane = threadIdx.x & 31;
    u32 bucket = magnitude ? (w % shared << (c - 1)) + magnitude - 1 : NONE;
    u32 peers = __match_any_sync(0xffffffffu, bucket), leader = __ffs(peers) - 1, base = 0;
    if (bucket != NONE && lane == leader) base = atomicAdd(ends + bucket, __popc(peers));
    base = __shfl_sync(0xffffffffu, base, leader);
    if (bucket != NONE) entries[base + __popc(peers & ((1u << lane) - 1))] = (w / shared * n + i) | (digit & SIGN);
}

// ---- (4) and (5)
DEV u32 begin_of(const u32* ends, u32 bucket) { return bucket ? ends[bucket - 1] : 0; }
// the first bucket in [low, high) that ends beyond `position`
DEV u32 bucket_at(const u32* ends, u32 low, u32 high, u32 position) {
    while (low < high) {
        u32 middle = (low + high) / 2;
        if (ends[middle] > position) high = middle;
        else low = middle + 1;
    }
    return low;
}
// Where a sum over part of [start, start + span) belongs: to its bucket if that lies inside, else to one of the two
// pieces that a span can leave: the end of a bucket that began before, the begin of one that goes on.
DEV void emit(const Xyzz& sum, u32 bucket, const u32* ends, u64 start, u64 span, Xyzz* buckets, Xyzz* pieces, u32* id) {
    u32 begin = begin_of(ends, bucket), end = ends[bucket];
    if (begin >= start && end <= start + span) {
        store(buckets + bucket, sum);
    } else {
        u32 side = begin >= start;
        store(pieces + side, sum);
        id[side] = bucket;
    }
}
DEV Affine signed_base(const Affine* bases, u32 entry) {
    Affine p = load(bases + (entry & ~SIGN));
    p.y = negate_if(p.y, (entry & SIGN) != 0);
    return p;
}
extern "C" __global__ void __launch_bounds__(128, ACCUMULATE_BLOCKS) msm_accumulate(const Affine* bases, const u32* entries, const u32* ends,
                                                                 u32 bucket_count, u32 span, u32 threads, Xyzz* buckets,
                                                                 Xyzz* pieces, u32* piece_ids) {
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= threads) return;
    u32* id = piece_ids + 2 * (u64)thread;
    id[0] = id[1] = NONE;
    u64 start = (u64)thread * span;
    u32 total = ends[bucket_count - 1];
    if (start >= total) return;
    u32 position = (u32)start, stop = total - position < span ? total : position + span;
    u32 bucket = bucket_at(ends, 0, bucket_count, position), run_end = position;
    Xyzz sum = infinity();
    while (position < stop) {
        if (position == run_end) {  // the next bucket: its first point is the sum
            if (position != start) {
                emit(sum, bucket, ends, start, span, buckets, pieces + 2 * (u64)thread, id);
                bucket++;
                if (ends[bucket] <= position) bucket = bucket_at(ends, bucket + 1, bucket_count, position);
            }
            u32 end = ends[bucket];
            run_end = end < stop ? end : stop;
            sum = widen(signed_base(bases, entries[position++]));
        }
        if (position < run_end) {
            Affine p = signed_base(bases, entries[position++]);
            if (is_infinity(p)) continue;
            if (is_infinity(sum)) sum = widen(p);
            else add_mixed(sum, p);
        }
    }
    emit(sum, bucket, ends, start, span, buckets, pieces + 2 * (u64)thread, id);
}
// A thread merges the pieces of `fan` spans of the level below, `span` being its own length in entries.
extern "C" __global__ void __launch_bounds__(64) msm_merge(const Xyzz* pieces_in, const u32* ids_in, u32 spans_in, u32 fan,
                                                           u64 span, u32 threads, const u32* ends, Xyzz* buckets,
                                                           Xyzz* pieces, u32* piece_ids) {
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= threads) return;
    u32* id = piece_ids + 2 * (u64)thread;
    id[0] = id[1] = NONE;
    u64 start = thread * span, slot = 2ull * fan * thread, stop = slot + 2 * fan;
    if (stop > 2ull * spans_in) stop = 2ull * spans_in;
    u32 bucket = NONE;
    Xyzz sum;
    for (; slot < stop; slot++) {
        u32 next = ids_in[slot];
        if (next == NONE) continue;
        Xyzz piece = load(pieces_in + slot);
        if (next == bucket) {
            add_into(sum, piece);
            continue;
        }
        if (bucket != NONE) emit(sum, bucket, ends, start, span, buckets, pieces + 2 * (u64)thread, id);
        bucket = next, sum = piece;
    }
    if (bucket != NONE) emit(sum, bucket, ends, start, span, buckets, pieces + 2 * (u64)thread, id);
}

// ---- (6) For a segment of `length` buckets of one window: out[0] = sum B_j, out[1] = sum j * B_j, j = 1..length.
// Arrays lie one after the other, `segments` points each, windows outermost.
extern "C" __global__ void __launch_bounds__(64) msm_reduce_first(const Xyzz* buckets, const u32* ends, u32 length,
                                                                  u32 segments, Xyzz* out) {
    u32 segment = blockIdx.x * blockDim.x + threadIdx.x;
    if (segment >= segments) return;
    Xyzz sum = infinity(), weighted = infinity();
    for (u32 k = length; k-- > 0;) {
        u32 bucket = segment * length + k;
        if (ends[bucket] != begin_of(ends, bucket)) add_into(sum, load(buckets + bucket));
        add_into(weighted, sum);
    }
    store(out + segment, sum);
    store(out + segments + segment, weighted);
}
// The same over the sums of the level before, with weights j = 0..length-1, while the weighted sums of all levels before
// are just added up: `arrays` in, arrays + 1 out. A window's value is T_1 + L_1 (T_2 + L_2 (T_3 + ...)) with L_k the length
// used at level k and T_k = out[k] of the last level.
extern "C" __global__ void __launch_bounds__(64) msm_reduce_next(const Xyzz* in, u32 arrays, u32 length, u32 segments,
                                                                 Xyzz* out) {
    u32 segment = blockIdx.x * blockDim.x + threadIdx.x, array = blockIdx.y;
    if (segment >= segments) return;
    const Xyzz* from = in + (u64)array * segments * length + (u64)segment * length;
    Xyzz sum = infinity(), weighted = infinity();
    for (u32 k = length; k-- > 0;) {
        if (array == 0) add_into(weighted, sum);
        add_into(sum, load(from + k));
    }
    store(out + (u64)array * segments + segment, sum);
    if (array == 0) store(out + (u64)arrays * segments + segment, weighted);
}
