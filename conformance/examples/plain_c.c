/*
 * Loss scaler in C that the suite tests as a program: it reads and writes JSON lines, and links only libm.
 *
 *     cc -std=c11 -O2 -ffp-contract=off -o plain_c conformance/examples/plain_c.c -lm
 *     ampscale conform --command ./plain_c
 *
 * It claims Paddle's rule at level 1: float32 scales and factors, a count of overflows, no bounds; the scale can grow to
 * infinity. The protocol is spec/conformance/protocol.md. A level 0 implementation omits the section "level 1" and the calls
 * on trees.
 */

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(const char *why)
{
    fprintf(stderr, "plain_c: %s\n", why);
    exit(1);
}

static void *grown(void *old, size_t size)
{
    void *block = realloc(old, size);
    if (block == NULL)
        fail("out of memory");
    return block;
}

/* --- the scaler --- */

typedef struct {
    float scale, growth_factor, backoff_factor;
    int64_t growth_interval, hysteresis, good_steps, bad_steps;
} Scaler;

static void update(Scaler *scaler, bool finite)
{
    if (finite) {
        scaler->bad_steps = 0;
        if (++scaler->good_steps >= scaler->growth_interval) {
            scaler->good_steps = 0;
            scaler->scale *= scaler->growth_factor;
        }
    } else {
        scaler->good_steps = 0;
        if (++scaler->bad_steps >= scaler->hysteresis) {
            scaler->bad_steps = 0;
            scaler->scale *= scaler->backoff_factor;
        }
    }
}

/* --- JSON: a value is a pointer to the start of its text; the text is assumed to be valid --- */

/* Return the end of the string that begins here. */
static char *after_string(char *at)
{
    while (*++at != '"')
        at += *at == '\\';
    return at + 1;
}

/* Return the end of this value. */
static char *after(char *at)
{
    if (*at == '"')
        return after_string(at);
    if (*at != '{' && *at != '[')
        return at + strcspn(at, ",]}");
    for (int depth = 0;;) {
        if (*at == '"') {
            at = after_string(at);
            continue;
        }
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        at++;
        if (depth == 0)
            return at;
    }
}

/* Return the first member or element of an object or list; NULL if there is none. */
static char *first(char *list)
{
    return list[1] == ']' || list[1] == '}' ? NULL : list + 1;
}

/* Return the member or element after the one that ends with this value; NULL if there is none. */
static char *next(char *value)
{
    char *end = after(value);
    return *end == ',' ? end + 1 : NULL;
}

/* Return the value of a member of this object; NULL if it has none of this name. */
static char *member(char *object, const char *name)
{
    size_t length = strlen(name);
    for (char *key = first(object); key != NULL;) {
        char *value = after_string(key) + 1;
        if (strncmp(key + 1, name, length) == 0 && key[length + 1] == '"')
            return value;
        key = next(value);
    }
    return NULL;
}

/* Remove the blanks between tokens, so that the functions above need not skip them. */
static void squeeze(char *text)
{
    char *to = text;
    for (char *from = text; *from != '\0';) {
        if (*from == '"') {
            char *end = after_string(from);
            while (from < end)
                *to++ = *from++;
        } else if (strchr(" \t\r\n", *from) != NULL)
            from++;
        else
            *to++ = *from++;
    }
    *to = '\0';
}

/* Return whether a value is this string. */
static bool is(const char *value, const char *text)
{
    size_t length = strlen(text);
    return strncmp(value + 1, text, length) == 0 && value[length + 1] == '"';
}

/* Read a bit pattern of this many hex digits. */
static uint64_t digits(const char *hex, int count)
{
    char text[17] = {0};
    memcpy(text, hex, (size_t)count);
    return strtoull(text, NULL, 16);
}

static double number(const char *value)
{
    uint64_t pattern = digits(value + 1, 16);
    double result;
    memcpy(&result, &pattern, sizeof result);
    return result;
}

static void print_number(double value)
{
    uint64_t pattern;
    memcpy(&pattern, &value, sizeof pattern);
    printf("\"%016" PRIx64 "\"", pattern);
}

/* --- level 1: trees. An array keeps its dtype, so its bit patterns are overwritten in the text of the request --- */

static float from_half(uint64_t pattern)
{
    int exponent = (int)(pattern >> 10 & 31), fraction = (int)(pattern & 1023);
    float value = exponent == 31 ? (fraction ? NAN : INFINITY)
                : exponent == 0  ? ldexpf((float)fraction, -24)
                                 : ldexpf((float)(1024 + fraction), exponent - 25);
    return pattern >> 15 ? -value : value;
}

static uint64_t to_half(float value)
{
    uint64_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value))
        return sign | 0x7e00;
    if (fabsf(value) >= 65520)
        return sign | 0x7c00;
    int exponent = fabsf(value) < 0x1p-14f ? -14 : ilogbf(value);
    uint64_t units = (uint64_t)nearbyintf(ldexpf(fabsf(value), 10 - exponent)); /* to even, as C rounds by default */
    return sign | (((uint64_t)(exponent + 14) << 10) + units);
}

typedef struct {
    float scale;
    bool divides, finite;
} Pass;

/* Scale one number in its own dtype, through float32 for 16 bits, and record whether it was finite. */
static void visit_number(Pass *pass, char *hex, int bits)
{
    uint64_t pattern = digits(hex, bits / 4);
    float single = 0;
    double wide = 0;
    if (bits == 64)
        memcpy(&wide, &pattern, sizeof wide);
    else if (bits == 16)
        single = from_half(pattern);
    else {
        uint32_t word = (uint32_t)pattern;
        memcpy(&single, &word, sizeof single);
    }
    pass->finite = pass->finite && isfinite(wide) && isfinite(single);
    single = pass->divides ? single / pass->scale : single * pass->scale;
    wide = pass->divides ? wide / pass->scale : wide * pass->scale;
    if (bits == 64)
        memcpy(&pattern, &wide, sizeof wide);
    else if (bits == 16)
        pattern = to_half(single);
    else {
        uint32_t word;
        memcpy(&word, &single, sizeof word);
        pattern = word;
    }
    char text[17];
    snprintf(text, sizeof text, "%0*" PRIx64, bits / 4, pattern);
    memcpy(hex, text, (size_t)bits / 4);
}

static void visit(Pass *pass, char *tree)
{
    char *dtype = *tree == '{' ? member(tree, "dtype") : NULL;
    if (dtype != NULL) {
        int bits = is(dtype, "float16") ? 16 : is(dtype, "float32") ? 32 : is(dtype, "float64") ? 64 : 0;
        for (char *text = first(member(tree, "bits")); text != NULL && bits != 0; text = next(text))
            visit_number(pass, text + 1, bits); /* integers and bools are finite and unchanged */
    } else if (*tree == '[')
        for (char *child = first(tree); child != NULL; child = next(child))
            visit(pass, child);
    else if (*tree == '{' && member(tree, "tuple") != NULL)
        visit(pass, member(tree, "tuple"));
    else if (*tree == '{')
        for (char *key = first(member(tree, "dict")); key != NULL; key = next(after(key) + 1))
            visit(pass, after(key) + 1);
}

/* --- the protocol --- */

static Scaler *scalers; /* a handle is an index */
static size_t count;

static size_t create(char *rule)
{
    scalers = grown(scalers, (count + 1) * sizeof *scalers);
    scalers[count] = (Scaler){
        .scale = (float)number(member(rule, "init_scale")),
        .growth_factor = (float)number(member(rule, "growth_factor")),
        .backoff_factor = (float)number(member(rule, "backoff_factor")),
        .growth_interval = atoll(member(rule, "growth_interval")),
        .hysteresis = atoll(member(rule, "hysteresis")),
    };
    return count++;
}

static size_t load(char *rule, char *saved)
{
    size_t handle = create(rule);
    scalers[handle].scale = (float)number(member(saved, "scale"));
    scalers[handle].good_steps = atoll(member(saved, "good_steps"));
    scalers[handle].bad_steps = atoll(member(saved, "bad_steps"));
    return handle;
}

static void print_saved(const Scaler *scaler)
{
    printf("{\"scale\":");
    print_number(scaler->scale);
    printf(",\"good_steps\":%" PRId64 ",\"bad_steps\":%" PRId64 "}", scaler->good_steps, scaler->bad_steps);
}

/* Print the outcome of one call: a result, or "absent". */
static void answer(char *call, char *arguments)
{
    char *handle = member(arguments, "handle"), *tree = member(arguments, "tree");
    Scaler *scaler = handle == NULL ? NULL : &scalers[atoll(handle)];
    Pass pass = {.scale = scaler == NULL ? 1 : scaler->scale, .divides = is(call, "unscale"), .finite = true};

    printf(",\"result\":");
    if (is(call, "hello"))
        printf("{\"protocol\":1,\"implementation\":{\"name\":\"plain C\",\"version\":\"1\",\"level\":1,\"preset\":\"paddle\","
               "\"capabilities\":[\"resume\",\"rounding\",\"division\",\"float16\",\"integers\",\"none\",\"empty\"]}}");
    else if (is(call, "create"))
        printf("%zu", create(member(arguments, "rule")));
    else if (is(call, "load"))
        printf("%zu", load(member(arguments, "rule"), member(arguments, "saved")));
    else if (is(call, "update")) {
        update(scaler, *member(arguments, "finite") == 't');
        printf("%lld", atoll(handle));
    } else if (is(call, "read_scale"))
        print_number(scaler->scale);
    else if (is(call, "save"))
        print_saved(scaler);
    else if (is(call, "scale") || is(call, "unscale")) {
        visit(&pass, tree);
        printf("%.*s", (int)(after(tree) - tree), tree);
    } else if (is(call, "all_finite")) {
        visit(&pass, tree);
        printf(pass.finite ? "true" : "false");
    } else {
        count = 0; /* reset and bye */
        printf("null");
    }
}

static bool known(char *call)
{
    static const char *const names[] = {"hello", "reset",  "bye",   "create",  "update",    "read_scale",
                                        "save",  "load",   "scale", "unscale", "all_finite"};
    for (size_t index = 0; index < sizeof names / sizeof *names; index++)
        if (is(call, names[index]))
            return true;
    return false;
}

/* Return the next line of stdin without blanks; NULL at its end. */
static char *read_request(void)
{
    static char *line;
    static size_t size;
    size_t length = 0;
    for (int byte; (byte = getchar()) != '\n'; line[length++] = (char)byte) {
        if (byte == EOF)
            return NULL;
        if (length + 2 > size)
            line = grown(line, size = 2 * size + 4096);
    }
    if (length == 0)
        fail("an empty line is no request");
    line[length] = '\0';
    squeeze(line);
    return line;
}

int main(void)
{
    for (char *request; (request = read_request()) != NULL;) {
        char *call = member(request, "call");
        printf("{\"id\":%lld", atoll(member(request, "id")));
        if (known(call))
            answer(call, member(request, "arguments"));
        else
            printf(",\"absent\":\"not implemented\"");
        printf("}\n");
        fflush(stdout);
        if (is(call, "bye"))
            break;
    }
    free(scalers);
    return 0;
}
