// Runs CUDA kernels on the host, one thread block at a time: included before a kernel file, compiled with the host's compiler.
//
// Every thread of a block is a fiber that runs until __syncthreads(); the block goes on when all have arrived. Warp
// functions act as if each lane were alone, which is a legal outcome of __match_any_sync's aggregation.
#pragma once
#include <ucontext.h>

#include <cstdint>
#include <vector>

#define __global__
#define __shared__ static
#define __launch_bounds__(...)
#define DYNAMIC_SHARED(type, name) type* name = reinterpret_cast<type*>(dynamic_shared)

struct Dimensions {
    unsigned x, y, z;
};
static Dimensions threadIdx, blockIdx, blockDim, gridDim;
alignas(64) static unsigned char dynamic_shared[1 << 16];

typedef void (*Kernel)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                       uint64_t, uint64_t);
static Kernel current;
static uint64_t arguments[12];
static ucontext_t scheduler;

struct Fiber {
    ucontext_t context;
    std::vector<unsigned char> stack;
    bool done;
};
static std::vector<Fiber> fibers;
static Fiber* running;

static void enter() {
    const uint64_t* a = arguments;
    current(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    running->done = true;
    swapcontext(&running->context, &scheduler);
}
static void __syncthreads() { swapcontext(&running->context, &scheduler); }

static inline unsigned __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(unsigned x) { return __builtin_ffs(x); }
static inline unsigned __brev(unsigned x) {
    unsigned r = 0;
    for (int i = 0; i < 32; i++) r |= (x >> i & 1) << (31 - i);
    return r;
}
static inline unsigned __match_any_sync(unsigned, unsigned) { return 1u << (threadIdx.x & 31); }
static inline unsigned __shfl_sync(unsigned, unsigned value, int) { return value; }
static inline unsigned atomicAdd(unsigned* at, unsigned value) {
    unsigned old = *at;
    *at += value;
    return old;
}

extern "C" void run_kernel(Kernel kernel, const unsigned* grid, unsigned block, const uint64_t* args) {
    current = kernel;
    for (int i = 0; i < 12; i++) arguments[i] = args[i];
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block, 1, 1};
    if (fibers.size() < block) fibers.resize(block);
    for (unsigned z = 0; z < grid[2]; z++)
        for (unsigned y = 0; y < grid[1]; y++)
            for (unsigned x = 0; x < grid[0]; x++) {
                blockIdx = {x, y, z};
                for (unsigned t = 0; t < block; t++) {
                    Fiber& fiber = fibers[t];
                    if (fiber.stack.empty()) fiber.stack.resize(1 << 16);
                    fiber.done = false;
                    getcontext(&fiber.context);
                    fiber.context.uc_stack.ss_sp = fiber.stack.data();
                    fiber.context.uc_stack.ss_size = fiber.stack.size();
                    fiber.context.uc_link = nullptr;
                    makecontext(&fiber.context, enter, 0);
                }
                for (bool any = true; any;) {
                    any = false;
                    for (unsigned t = 0; t < block; t++) {
                        if (fibers[t].done) continue;
                        running = &fibers[t];
                        threadIdx = {t, 0, 0};
                        swapcontext(&scheduler, &running->context);
                        any |= !fibers[t].done;
                    }
                }
            }
}
