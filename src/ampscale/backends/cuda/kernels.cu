/*
 * One pass over many arrays, launched by cupy/launches.py: each number is read once, divided or multiplied, rounded, checked,
 * squared or measured, and written once.
 *
 * The results equal core/scaling, core/overflow and core/statistics bit for bit, and core/norms within 2 ulp.
 *
 * arrays      Of one dtype and any length, including 0; contiguous, and aligned to their elements. A complex number counts as
 *             two real ones. If source and target are aligned to 16 bytes, 16 bytes are read at a time.
 * rows        One for each array of the call, in the order of `first_chunk`.
 * owners      For each chunk of the call, the index of its row.
 * target      Null if nothing is written; equal to the source in place; else memory that no row reads and no other row writes.
 *             Every number of the target is written.
 * factor      float32 or float64 on the device; the host does not read it. If null, `number` is the factor.
 * finite      One byte, which the caller has set to 1. Every thread that finds an infinity or a NaN among the rounded numbers
 *             writes 0. No thread reads the byte or writes 1, so the order of the writes does not matter.
 * square_bits Bits of the dtype in which squares are taken: 32 or 64; 0 for no sums.
 * collected   One record for each chunk of all launches of a call: Sums of squares, null if `square_bits` is 0; or, if STATISTICS
 *             is defined, Statistics. All are written, so they need no initialization. If EXPONENTS is defined: the counts of
 *             all arrays, BINS for each, which the caller has set to 0.
 *
 * Squares are added in a fixed order, by thread, chunk and array, without atomic operations: equal memory gives equal bits on
 * every run and every device. The order depends on the alignment of arrays, not on the number of multiprocessors. The counts of
 * histograms are integers, whose sum does not depend on the order, and are added atomically.
 *
 * The launches of one call run in order on one stream and need no other synchronization. All arguments are addresses and
 * numbers, so a graph can capture the launches; a replay reads what the memory at these addresses contains at that time.
 *
 * CuPy always compiles with -ftz=true. float32 arithmetic on numbers that can be subnormal is therefore written in PTX, where
 * an instruction without .ftz keeps subnormal numbers. A build without __CUDACC__ must define these functions itself.
 */

struct float16 { unsigned short bits; };
struct bfloat16 { unsigned short bits; };
typedef float float32;
typedef double float64;

struct Row {
    const void* source;
    void* target;
    long long length;       // in real numbers
    long long first_chunk;  // index among the chunks of all rows of the call
    long long position;     // index of the array in the tree

    __device__ long long chunks() const { return (length + CHUNK - 1) / CHUNK; }
};

struct Part { Row rows[TABLE_PART]; };  // argument of write_rows

template <class In> struct ComputeDtype { typedef float32 type; };  // compute dtype of a number
template <> struct ComputeDtype<float64> { typedef float64 type; };

/* Conversions, rounding to nearest with ties to even. */

#ifdef __CUDACC__
__device__ void convert(float16 from, float32& to) { asm("cvt.f32.f16 %0, %1;" : "=f"(to) : "h"(from.bits)); }
__device__ void convert(float32 from, float16& to) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(from)); }
__device__ void convert(float32 from, float64& to) { asm("cvt.f64.f32 %0, %1;" : "=d"(to) : "f"(from)); }
__device__ void convert(float64 from, float32& to) { asm("cvt.rn.f32.f64 %0, %1;" : "=f"(to) : "d"(from)); }
__device__ float32 times(float32 a, float32 b) { asm("mul.rn.f32 %0, %0, %1;" : "+f"(a) : "f"(b)); return a; }
__device__ float32 over(float32 a, float32 b) { asm("div.rn.f32 %0, %0, %1;" : "+f"(a) : "f"(b)); return a; }
__device__ float32 fused(float32 a, float32 b, float32 c) { asm("fma.rn.f32 %0, %0, %1, %2;" : "+f"(a) : "f"(b), "f"(c)); return a; }
__device__ float32 plus(float32 a, float32 b) { asm("add.rn.f32 %0, %0, %1;" : "+f"(a) : "f"(b)); return a; }
#endif

__device__ float64 times(float64 a, float64 b) { return a * b; }
__device__ float64 fused(float64 a, float64 b, float64 c) { return fma(a, b, c); }
__device__ float64 over(float64 a, float64 b) { return a / b; }
__device__ float64 plus(float64 a, float64 b) { return a + b; }

__device__ void convert(float32 from, float32& to) { to = from; }
__device__ void convert(float64 from, float64& to) { to = from; }
__device__ void convert(bfloat16 from, float32& to) { to = __uint_as_float((unsigned)from.bits << 16); }
__device__ void convert(float32 from, bfloat16& to) {
    unsigned bits = __float_as_uint(from);
    bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    to.bits = nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

template <class To, class From> __device__ To as(From from) {
    To to;
    convert(from, to);
    return to;
}

__device__ void convert(float16 from, float64& to) { to = as<float64>(as<float32>(from)); }
__device__ void convert(bfloat16 from, float64& to) { to = as<float64>(as<float32>(from)); }

__device__ bool is_finite(float16 a) { return (a.bits & 0x7c00u) != 0x7c00u; }
__device__ bool is_finite(bfloat16 a) { return (a.bits & 0x7f80u) != 0x7f80u; }
__device__ bool is_finite(float32 a) { return (__float_as_uint(a) & 0x7f800000u) != 0x7f800000u; }
__device__ bool is_finite(float64 a) { return (__double_as_longlong(a) & 0x7ffll << 52) != 0x7ffll << 52; }

__device__ bool is_normal(float32 a) { return is_finite(a) && (__float_as_uint(a) & 0x7f800000u) != 0; }

/* Return true if a is a positive power of two, and a and 1 / a are normal numbers; then 1 / a is exact. */
__device__ bool has_reciprocal(float32 a) {
    unsigned bits = __float_as_uint(a), exponent = bits >> 23;
    return (bits & 0x7fffffu) == 0 && exponent >= 1 && exponent <= 253;
}
__device__ bool has_reciprocal(float64 a) {
    long long bits = __double_as_longlong(a), exponent = bits >> 52;
    return (bits & 0xfffffffffffffll) == 0 && exponent >= 1 && exponent <= 2045;
}

/* Operation on each number. A thread reads AT_ONCE packs of 16 bytes ahead; fewer for divisions, which hide the latency. */
template <class Number> struct Product {
    enum { AT_ONCE = DEPTH };
    Number factor;

    __device__ Number operator()(Number a) const { return times(a, factor); }
};
template <class Number> struct Quotient {
    enum { AT_ONCE = DEPTH / 2 };
    Number divisor;

    __device__ explicit Quotient(Number divisor) : divisor(divisor) {}
    __device__ Number operator()(Number a) const { return over(a, divisor); }
};

/*
 * Division, as multiplication by a reciprocal that each thread computes once. The product is less than 1.5 ulp away from the
 * quotient. Adding the remainder times the reciprocal rounds the product correctly if no number is subnormal or infinite
 * (proved in test_launches.py). Otherwise the quotient is computed in float64, whose range and digits suffice for correct
 * rounding.
 */
template <> struct Quotient<float32> {
    enum { AT_ONCE = DEPTH / 2 };
    float32 divisor, opposite, reciprocal;
    float64 float64_reciprocal;
    unsigned least, range;  // bits times 2, without the sign: least product for which float32 suffices, and range above it

    __device__ explicit Quotient(float32 divisor) : divisor(divisor), reciprocal(over(1.0f, divisor)) {
        opposite = times(divisor, -1.0f);
        float64_reciprocal = over(1.0, as<float64>(divisor));
        const float32 low = 0x1p-70f;  // lower bound of the product and of the number: the remainder is then normal
        least = 2 * __float_as_uint(float64_reciprocal > 1 ? times(reciprocal, low) : low);
        range = is_normal(divisor) && is_normal(reciprocal) ? 2 * 0x7f7fffffu - least : 0;
    }
    __device__ float32 operator()(float32 a) const {
        const float32 product = times(a, reciprocal);
        if (2 * __float_as_uint(product) - least < range) return fused(fused(product, opposite, a), reciprocal, product);
        return as<float32>(in_float64(as<float64>(a)));
    }
    __device__ float64 in_float64(float64 a) const {
        const float64 product = times(a, float64_reciprocal), excess = fused(product, as<float64>(divisor), -a);
        return excess == excess ? fused(-excess, float64_reciprocal, product) : product;  // NaN if a number is infinite
    }
};

/*
 * Sums of squares. The squares of all float32 numbers are normal in float64. Large and small float64 numbers are multiplied by
 * a power of two, DOWN or UP, before they are squared, so that no square overflows or underflows.
 */
struct Sums {
    float64 plain, large, small;

    __device__ void add(const Sums& other) {
        plain += other.plain;
        large += other.large;
        small += other.small;
    }
};

/* Encoding of magnitudes in a compute dtype, as bit patterns without the sign, in the order of the magnitudes. */
template <class Number> struct Encoding;
template <> struct Encoding<float32> {
    typedef unsigned Pattern;

    static __device__ Pattern of(float32 a) { return __float_as_uint(a) & 0x7fffffffu; }
    static __device__ Pattern infinity() { return 0x7f800000u; }
    static __device__ int exponent(Pattern a) { return a >> 23 ? (int)(a >> 23) - 127 : -118 - __clz(a); }  // of a positive number
};
template <> struct Encoding<float64> {
    typedef unsigned long long Pattern;

    static __device__ Pattern of(float64 a) { return __double_as_longlong(a) & 0x7fffffffffffffffll; }
    static __device__ Pattern infinity() { return 0x7ffull << 52; }
    static __device__ int exponent(Pattern a) { return a >> 52 ? (int)(a >> 52) - 1023 : -1011 - __clzll(a); }
};

/* One row of core/statistics: the columns of COLUMNS. */
struct Statistics {
    int size, zeros, subnormals, underflows, infinities, nans, smallest, largest;

    __device__ void add(const Statistics& other) {
        size += other.size;
        zeros += other.zeros;
        subnormals += other.subnormals;
        underflows += other.underflows;
        infinities += other.infinities;
        nans += other.nans;
        smallest = other.smallest < smallest ? other.smallest : smallest;
        largest = other.largest > largest ? other.largest : largest;
    }
};

/* Sum of the squares of numbers that were multiplied by `lift`, a power of two. */
struct Lifted { float64 square, lift; };

__device__ Lifted lifted(const Sums& sums) {
    if (sums.large != 0) return {sums.large + sums.plain * DOWN * DOWN, DOWN};
    if (sums.plain != 0) return {sums.plain + sums.small / UP / UP, 1};
    return {sums.small, UP};
}

/*
 * Collectors. A thread passes each number that it reads, and the rounded result, to one of them: it collects nothing; sums of
 * squares that are taken in the precision of Number; statistics; or the counts of a histogram in shared memory.
 */
struct Nothing {
    template <class In, class Out> __device__ void add(In, Out) {}
};
template <class Number> struct Squares;
template <> struct Squares<float32> {
    Sums sums{0, 0, 0};

    template <class In, class Out> __device__ void add(In, Out rounded) {
        const float32 number = as<float32>(rounded), square = times(number, number);
        if (is_normal(square)) sums.plain += as<float64>(square);
        else sums.plain += times(as<float64>(number), as<float64>(number));
    }
};
template <> struct Squares<float64> {
    Sums sums{0, 0, 0};

    template <class In, class Out> __device__ void add(In, Out rounded) {
        const float64 number = as<float64>(rounded), magnitude = number < 0 ? -number : number;
        if (magnitude > 1 / LEAST) sums.large += times(number * DOWN, number * DOWN);
        else if (magnitude < LEAST) sums.small += times(number * UP, number * UP);
        else sums.plain += times(number, number);
    }
};

template <class Number> struct Measured {
    typedef Encoding<Number> Code;
    typename Code::Pattern least = Code::infinity(), most = 0;  // of the non-zero, finite magnitudes
    Statistics counts{0, 0, 0, 0, 0, 0, 0, 0};

    template <class In, class Out> __device__ void add(In number, Out) {
        const typename Code::Pattern pattern = Code::of(as<Number>(number));
        counts.size += 1;
        counts.zeros += pattern == 0;
        counts.subnormals += pattern != 0 && pattern < Code::of((Number)0x1p-14);
        counts.underflows += pattern != 0 && pattern <= Code::of((Number)0x1p-25);
        counts.infinities += pattern == Code::infinity();
        counts.nans += pattern > Code::infinity();
        if (pattern == 0 || pattern >= Code::infinity()) return;
        least = pattern < least ? pattern : least;
        most = pattern > most ? pattern : most;
    }
    __device__ Statistics statistics() const {
        Statistics result = counts;
        result.smallest = most == 0 ? NO_SMALLEST : Code::exponent(least);
        result.largest = most == 0 ? NO_LARGEST : Code::exponent(most);
        return result;
    }
};
template <class Number> struct Exponents {
    typedef Encoding<Number> Code;
    int* bins;

    template <class In, class Out> __device__ void add(In number, Out) {
        const typename Code::Pattern pattern = Code::of(as<Number>(number));
        if (pattern == 0 || pattern >= Code::infinity()) return;
        const int bin = Code::exponent(pattern) - LOWEST;
        atomicAdd(&bins[bin < 0 ? 0 : bin < BINS ? bin : BINS - 1], 1);
    }
};

/* State of one thread, which processes one number after the other. */
template <class In, class Out, class Operation, class Collector> struct Worker {
    enum { AT_ONCE = Operation::AT_ONCE };
    Operation operation;
    Collector collector;
    bool finite = true;

    __device__ Out operator()(In number) {
        const Out rounded = as<Out>(operation(as<typename ComputeDtype<In>::type>(number)));
        finite = finite && is_finite(rounded);
        collector.add(number, rounded);
        return rounded;
    }
};

template <class Number, int SIZE> struct alignas(16) Pack { Number numbers[SIZE]; };

__device__ bool is_aligned(const void* memory) { return ((unsigned long long)memory & 15) == 0; }

/* Process the complete packs of a chunk, and return how many numbers they contain. A thread reads AT_ONCE packs ahead. */
template <class In, class Out, class Work> __device__ int pass_packs(Work& worker, const In* source, Out* target, int length) {
    const int size = 16 / sizeof(In), packs = length / size;
    const Pack<In, size>* sources = (const Pack<In, size>*)source;
    Pack<Out, size>* targets = (Pack<Out, size>*)target;
#pragma unroll 1
    for (int first = threadIdx.x; first < packs; first += THREADS * Work::AT_ONCE) {
        Pack<In, size> read[Work::AT_ONCE];
#pragma unroll
        for (int i = 0; i < Work::AT_ONCE; ++i)
            if (first + i * THREADS < packs) read[i] = sources[first + i * THREADS];
#pragma unroll
        for (int i = 0; i < Work::AT_ONCE; ++i) {
            if (first + i * THREADS >= packs) break;
            Pack<Out, size> rounded;
#pragma unroll
            for (int j = 0; j < size; ++j) rounded.numbers[j] = worker(read[i].numbers[j]);
            if (target != nullptr) targets[first + i * THREADS] = rounded;
        }
    }
    return packs * size;
}

/* Return the sum of the records of each group of `size` threads. The result is valid in the first thread of the group. */
template <class Record> __device__ Record group_sum(const Record& mine, unsigned size) {
    __shared__ Record records[THREADS];
    records[threadIdx.x] = mine;
    for (unsigned half = size / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x % size < half) records[threadIdx.x].add(records[threadIdx.x + half]);
    }
    return records[threadIdx.x];
}

/* Assure the compiler that an address is in global memory: shared and local memory would need other instructions. */
template <class Number> __device__ Number* global(Number* memory) {
    __builtin_assume(__isGlobal(memory));
    return memory;
}

/* Part of an array that a block processes. */
template <class In, class Out> struct Chunk {
    const In* source;
    Out* target;
    int length;
    long long index;     // index among the chunks of all rows of the call
    long long position;  // index of the array in the tree

    __device__ Chunk(const Row* rows, const int* owners, long long first) : index(first + blockIdx.x) {
        const Row row = rows[owners[index]];
        position = row.position;
        const long long begin = (index - row.first_chunk) * CHUNK, left = row.length - begin;
        source = global((const In*)row.source + begin);
        target = row.target == nullptr ? nullptr : global((Out*)row.target + begin);
        length = left < CHUNK ? left : CHUNK;
    }
};

/* Process every number of a chunk. The worker is a template parameter, so that the loop does not branch on its type. */
template <class In, class Out, class Work>
__device__ void pass_chunk(const Chunk<In, Out>& chunk, Work& worker, unsigned char* finite) {
    const bool aligned = is_aligned(chunk.source) && is_aligned(chunk.target);
    const int packed = aligned ? pass_packs(worker, chunk.source, chunk.target, chunk.length) : 0;
#pragma unroll 1
    for (int i = packed + threadIdx.x; i < chunk.length; i += THREADS) {
        Out rounded = worker(chunk.source[i]);
        if (chunk.target != nullptr) chunk.target[i] = rounded;
    }
    if (!worker.finite) *finite = 0;
}

template <class Number, class In, class Out, class Operation>
__device__ void pass_squared(const Chunk<In, Out>& chunk, Operation operation, unsigned char* finite, Sums* collected) {
    Worker<In, Out, Operation, Squares<Number>> worker{operation};
    pass_chunk(chunk, worker, finite);
    const Sums sum = group_sum(worker.collector.sums, THREADS);
    if (threadIdx.x == 0) collected[chunk.index] = sum;
}

template <class In, class Out, class Operation>
__device__ void pass(const Chunk<In, Out>& chunk, Operation operation, int square_bits, unsigned char* finite, void* collected) {
    typedef typename ComputeDtype<In>::type Number;
#if defined(STATISTICS)
    Worker<In, Out, Operation, Measured<Number>> worker{operation};
    pass_chunk(chunk, worker, finite);
    const Statistics sum = group_sum(worker.collector.statistics(), THREADS);
    if (threadIdx.x == 0) ((Statistics*)collected)[chunk.index] = sum;
#elif defined(EXPONENTS)
    __shared__ int bins[BINS];
    for (int bin = threadIdx.x; bin < BINS; bin += THREADS) bins[bin] = 0;
    __syncthreads();
    Worker<In, Out, Operation, Exponents<Number>> worker{operation, {bins}};
    pass_chunk(chunk, worker, finite);
    __syncthreads();
    int* counts = (int*)collected + chunk.position * BINS;
    for (int bin = threadIdx.x; bin < BINS; bin += THREADS)
        if (bins[bin] != 0) atomicAdd(&counts[bin], bins[bin]);
#else
    if (square_bits == 32) pass_squared<float32>(chunk, operation, finite, (Sums*)collected);
    else if (square_bits == 64) pass_squared<float64>(chunk, operation, finite, (Sums*)collected);
    else {
        Worker<In, Out, Operation, Nothing> worker{operation};
        pass_chunk(chunk, worker, finite);
    }
#endif
}

template <class Number> __device__ Number value_of(const void* factor, bool is_float64, double number) {
    if (factor == nullptr) return as<Number>(number);
    return is_float64 ? as<Number>(*(const float64*)factor) : as<Number>(*(const float32*)factor);
}

/*
 * PASS: the fused pass for the dtypes IN and OUT. One block of THREADS threads processes each chunk from `first` on. A division
 * with an exact reciprocal is computed as a multiplication. If PASS is not defined, the other kernels are compiled.
 */
#ifdef PASS
extern "C" __global__ void __launch_bounds__(THREADS) PASS(
    const Row* rows, const int* owners, long long first, const void* factor, bool factor_is_float64, double number, bool divides,
    int square_bits, unsigned char* finite, void* collected) {
    typedef ComputeDtype<IN>::type Number;
    const Chunk<IN, OUT> chunk(rows, owners, first);
    const Number value = value_of<Number>(factor, factor_is_float64, number);
    if (divides && !has_reciprocal(value)) pass(chunk, Quotient<Number>{value}, square_bits, finite, collected);
    else pass(chunk, Product<Number>{divides ? over((Number)1, value) : value}, square_bits, finite, collected);
}
#else

/*
 * write_rows: one block for each row of `part`. It writes the row to `rows`, from index `first` on, and the index of the row
 * to `owners`, once for each chunk of the row. A graph stores the arguments of a kernel, but no host memory.
 */
extern "C" __global__ void __launch_bounds__(THREADS) write_rows(const Part part, Row* rows, int* owners, int first) {
    const Row row = part.rows[blockIdx.x];
    const int index = first + blockIdx.x;
    if (threadIdx.x == 0) rows[index] = row;
    for (long long i = threadIdx.x; i < row.chunks(); i += THREADS) owners[row.first_chunk + i] = index;
}

/* Round a non-negative sum of squares to the precision of Number, with bit operations as in `convert` to bfloat16. */
template <class Number> __device__ float64 in_digits(float64 a) { return a; }
template <> __device__ float64 in_digits<float32>(float64 a) {
    const long long bits = __double_as_longlong(a);
    return __longlong_as_double((bits + 0xfffffffll + (bits >> 29 & 1)) & ~0x1fffffffll);
}

template <class Number> __device__ Lifted plus(const Lifted& a, const Lifted& b) {
    if (a.lift == b.lift) return {in_digits<Number>(a.square + b.square), a.lift};  // the usual case needs no divisions
    const float64 lift = a.lift < b.lift ? a.lift : b.lift, left = lift / a.lift, right = lift / b.lift;
    return {in_digits<Number>(a.square * left * left + b.square * right * right), lift};
}

/* Return a sum of squares of float32 numbers, whose lift is 1 unless it is 0, as a float32; infinity if it is subnormal there. */
__device__ float32 in_range(const Lifted& sum) {
    return sum.square == 0 || sum.square >= 0x1p-126 ? as<float32>(sum.square) : __uint_as_float(0x7f800000u);
}

/*
 * Add sums to `total` in order, in float32, which rounds to the same digits with fewer instructions. `squares` has the
 * `in_range` of each sum. Return false, and add nothing, if Number is not float32, or if the result is not finite.
 */
template <class Number> __device__ bool add_in_float32(Lifted&, const float32*, int) { return false; }
template <> __device__ bool add_in_float32<float32>(Lifted& total, const float32* squares, int count) {
    float32 sum = in_range(total);
#pragma unroll 8
    for (int i = 0; i < count; ++i) sum = plus(sum, squares[i]);
    if (is_finite(sum)) total = {as<float64>(sum), 1};
    return is_finite(sum);
}

template <class Number> __device__ Number root(const Lifted& sum, float64 lift = 1) {
    return as<Number>(sqrt(sum.square) * (lift / sum.lift));
}

/* Add up the records of the chunks of each of `count` rows, in `size` threads each. Return true in the thread with the sum. */
template <class Record>
__device__ bool total(const Row* rows, int count, int size, const Record* collected, Record& sum, long long& position) {
    const long long index = (blockIdx.x * (long long)THREADS + threadIdx.x) / size;
    const Row row = rows[index < count ? index : 0];
#pragma unroll 4
    for (long long i = threadIdx.x % size; i < row.chunks(); i += size) sum.add(collected[row.first_chunk + i]);
    sum = group_sum(sum, size);
    position = row.position;
    return threadIdx.x % size == 0 && index < count;
}

/* square_sums_<dtype>: `size` threads for each row of the call; writes `sums` in the order of the tree, each rounded once. */
template <class Number>
__device__ void square_sum(const Row* rows, int count, int size, const Sums* collected, Lifted* sums) {
    Sums mine{0, 0, 0};
    long long position;
    if (!total(rows, count, size, collected, mine, position)) return;
    const Lifted sum = lifted(mine);
    sums[position] = {in_digits<Number>(sum.square), sum.lift};
}

/* statistics: `size` threads for each row of the call; writes `sums` in the order of the tree. */
extern "C" __global__ void __launch_bounds__(THREADS) statistics(
    const Row* rows, int count, int size, const Statistics* collected, Statistics* sums) {
    Statistics sum{0, 0, 0, 0, 0, 0, NO_SMALLEST, NO_LARGEST};
    long long position;
    if (total(rows, count, size, collected, sum, position)) sums[position] = sum;
}

/* Return the coefficient that clips to `limit`, which must be finite as a Number. A NaN norm counts as `limit`. */
template <class Number> __device__ Number ratio(Number norm, float64 limit, float64 epsilon) {
    const Number most = as<Number>(limit), larger = as<float64>(norm) > as<float64>(most) ? norm : most;
    return over(most, plus(larger, as<Number>(epsilon)));
}

/*
 * norms_<dtype>: one block; writes the roots of `count` sums, the root of their total, which is added in order, and the
 * coefficient that clips to `limit`. If the norm is infinite, the coefficient is computed from the norm times `down` and from
 * `lifted_limit`, the limit times `down`.
 */
template <class Number>
__device__ void roots(
    const Lifted* sums, int count, float64 limit, float64 lifted_limit, float64 down, float64 epsilon,
    Number* local, Number* norm, Number* coefficient) {
    __shared__ Lifted loaded[THREADS];
    __shared__ float32 squares[THREADS];
    Lifted total{0, UP};
    for (int first = 0; first < count; first += THREADS) {
        const int index = first + threadIdx.x;
        __syncthreads();
        if (index < count) {
            loaded[threadIdx.x] = sums[index];
            squares[threadIdx.x] = in_range(sums[index]);
            local[index] = root<Number>(sums[index]);
        }
        __syncthreads();
        const int additions = threadIdx.x != 0 ? 0 : count - first < THREADS ? count - first : THREADS;
        if (add_in_float32<Number>(total, squares, additions)) continue;
        for (int i = 0; i < additions; ++i) total = plus<Number>(total, loaded[i]);
    }
    if (threadIdx.x != 0) return;
    const Number all = root<Number>(total);
    const bool is_infinite = !is_finite(all) && as<float64>(all) > 0;
    *norm = all;
    *coefficient = is_infinite ? ratio(root<Number>(total, down), lifted_limit, epsilon) : ratio(all, limit, epsilon);
}

#define NORMS(Sum)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS) square_sums_##Sum(                                                \
        const Row* rows, int count, int size, const Sums* collected, Lifted* sums) {                                        \
        square_sum<Sum>(rows, count, size, collected, sums);                                                                \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS) norms_##Sum(                                                      \
        const Lifted* sums, int count, double limit, double lifted_limit, double down, double epsilon,                      \
        Sum* local, Sum* norm, Sum* coefficient) {                                                                          \
        roots<Sum>(sums, count, limit, lifted_limit, down, epsilon, local, norm, coefficient);                              \
    }

NORMS(float32)
NORMS(float64)
#endif
