/*
 * kernels.cu for a C++ compiler: the threads of a block are host threads, and the blocks of a launch run one after another.
 *
 * Every thread of a block calls a kernel between `enter` and `leave`. The functions that kernels.cu defines
 * for __CUDACC__ only are plain IEEE 754 operations here.
 */

#include <atomic>
#include <barrier>
#include <bit>
#include <cmath>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(threads)
#define __builtin_assume(fact)

using std::fma;
using std::sqrt;

static thread_local struct { unsigned x; } threadIdx, blockIdx;
static std::barrier<> block(THREADS);
static void __syncthreads() { block.arrive_and_wait(); }

static float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
static unsigned __float_as_uint(float number) { return std::bit_cast<unsigned>(number); }
static int __clz(unsigned bits) { return std::countl_zero(bits); }
static int __clzll(unsigned long long bits) { return std::countl_zero(bits); }
static void atomicAdd(int* count, int number) { std::atomic_ref<int>(*count) += number; }
static long long __double_as_longlong(double number) { return std::bit_cast<long long>(number); }
static double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }

struct float16;
void convert(float16 from, float& to);
void convert(float from, float16& to);
static void convert(float from, double& to) { to = from; }
static void convert(double from, float& to) { to = (float)from; }
static float times(float a, float b) { return a * b; }
static std::atomic<long> quotients = 0;
static float over(float a, float b) {
    ++quotients;
    return a / b;
}
static float fused(float a, float b, float c) { return fma(a, b, c); }
static float plus(float a, float b) { return a + b; }

#include KERNELS

void convert(float16 from, float& to) { to = std::bit_cast<_Float16>(from.bits); }
void convert(float from, float16& to) { to.bits = std::bit_cast<unsigned short>((_Float16)from); }

extern "C" void enter(unsigned index, unsigned thread) {
    blockIdx.x = index;
    threadIdx.x = thread;
}

extern "C" void leave() { block.arrive_and_wait(); }

extern "C" unsigned short as_bfloat16(unsigned bits) { return as<bfloat16>(std::bit_cast<float>(bits)).bits; }

extern "C" long divisions() { return quotients.exchange(0); }

extern "C" void divide(const float* numbers, const float* divisors, float* results, long count) {
    for (long i = 0; i < count; ++i) results[i] = Quotient<float32>(divisors[i])(numbers[i]);
}
