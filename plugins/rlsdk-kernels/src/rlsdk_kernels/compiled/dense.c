/* Dense layers: outputs, gradients, and the change of outputs with the parameters. All matrices are stored by rows. */
#include <stdatomic.h>
#include <stdlib.h>

#include "dense.h"
#include "layer_norm.h"
#include "products.h"

#define FEW_ROWS 4
#define MANY_ROWS 64 /* with at least so many, copying the weights for each thread takes little of its time */
#define FEW_OUTPUTS (WIDTH / 4) /* padding to a whole register would take longer */
#define BLOCK 512 /* rows that are evaluated together without a trace, so that their outputs stay in the caches */

/* Whether the weight is stored as [inputs, outputs]. With a single output both are the same. */
INLINE int is_by_inputs(Layer layer) { return layer.by_inputs && layer.outputs > 1; }

static void sum_rows(const float *matrix, int64_t rows, int64_t columns, float *sums) {
    memset(sums, 0, 4 * columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) sums[j] += matrix[i * columns + j];
}

/* Memory for `count` floats, which begins with a cache line. Registers are loaded faster if they do not extend over two lines. */
static float *new_floats(int64_t count) { return aligned_alloc(64, (count / 16 + 1) * 64); }

/* Floats of working memory that the functions below need for `rows`. */
static int64_t working_size(const Layer *layers, int64_t count, int64_t rows) {
    int64_t largest = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t in = padded(layers[i].inputs), out = padded(layers[i].outputs);
        int64_t own = (in + 1) * out + rows * (in > out ? in : out); /* a matrix, a bias and the outputs or inputs */
        if (own > largest) largest = own;
    }
    return largest;
}

/* outputs [rows, O] = activation(inputs [rows, I] weight^T + bias), without normalization. `memory` has (I + 1) * padded O
 * floats. */
static void evaluate_linear(const float *inputs, int64_t rows, Layer layer, float *memory, float *outputs) {
    int64_t in = layer.inputs, out = layer.outputs;
    if (!is_by_inputs(layer) && (rows < FEW_ROWS || out <= FEW_OUTPUTS)) {
        dot_products(inputs, rows, layer.weight, in, layer.bias, outputs, out);
        activate(outputs, rows * out, layer.activation);
        return;
    }
    const float *right = memory;
    float *biases = memory + in * padded(out);
    if (is_by_inputs(layer)) right = with_padding(layer.weight, in, out, memory);
    else transpose(layer.weight, out, in, memory);
    memset(biases, 0, 4 * padded(out));
    memcpy(biases, layer.bias, 4 * out);
    multiply(&(Product){.left = {inputs, in, 1}, .rows = rows, .right = right, .inner = in, .columns = out, .bias = biases,
                        .activation = layer.activation, .result = outputs});
}

/* The outputs [rows, O] of a layer. The arrays `normalized` [rows, O] and `inverse` [rows] of its trace may be NULL. */
static void evaluate(const float *inputs, int64_t rows, Layer layer, float *memory, float *outputs, float *normalized,
                     float *inverse) {
    Layer linear = layer;
    if (layer.scale) linear.activation = IDENTITY;
    evaluate_linear(inputs, rows, linear, memory, outputs);
    if (!layer.scale) return;
    normalize_rows(layer, rows, outputs, normalized, inverse);
    activate(outputs, rows * layer.outputs, layer.activation);
}

/* result [out, in] = grad^T x, given grad [rows, out] and x [rows, in]. `memory` has `working_size` floats. */
static void weight_grad(const float *grad, const float *x, int64_t rows, int64_t in, int64_t out, float *memory,
                        float *result) {
    if (in <= FEW_OUTPUTS && out > in) { /* the transpose needs less padding */
        const float *right = with_padding(grad, rows, out, memory);
        float *transposed = memory + rows * padded(out);
        multiply(&(Product){.left = {x, 1, in}, .rows = in, .right = right, .inner = rows, .columns = out, .result = transposed});
        for (int64_t o = 0; o < out; o++)
            for (int64_t k = 0; k < in; k++) result[o * in + k] = transposed[k * out + o];
        return;
    }
    const float *right = with_padding(x, rows, in, memory);
    multiply(&(Product){.left = {grad, 1, out}, .rows = out, .right = right, .inner = rows, .columns = in, .result = result});
}

/* What the members of an ensemble compute, from member `first`. Each has `count` layers, and its rows are divided into `ranges`.
 * `dense_forward` and `dense_backward` explain the other fields. */
typedef struct {
    const Layer *layers;
    int64_t first, count, rows, ranges;
    const float *inputs;
    float *trace, *outputs;
    const float *grad;
    float *const *into;
    float *input_grad;
    atomic_int *exhausted;
} Members;

/* The layers of member `m`. */
static Network member(const Members *all, int64_t m) { return (Network){all->layers + m * all->count, all->count, 0}; }

/* Compute all members. Returns 1 if memory is exhausted.
 *
 * All threads compute the same number of whole members. The members that are left are divided by rows; if `compute` cannot divide
 * them (`by_rows` is 0), threads share their products. Large parts take less time than products: threads wait for each other only
 * once, and also share what is between the products. */
static int compute_members(Members all, int64_t members, Work compute, int by_rows) {
    atomic_int exhausted = 0;
    int64_t threads = threads_in_use(), size = 0;
    for (int64_t i = 0; i < all.count; i++) size += all.rows * all.layers[i].inputs * all.layers[i].outputs;
    if (size < LARGE) threads = 1;
    int64_t whole = threads > 1 ? members - members % threads : 0;
    all.exhausted = &exhausted;
    all.ranges = 1;
    if (whole) in_parallel(compute, &all, whole);
    all.first = whole;
    if (by_rows && threads > 1 && all.rows >= threads * MANY_ROWS) {
        all.ranges = threads;
        in_parallel(compute, &all, (members - whole) * threads);
    } else for (int64_t m = 0; m < members - whole; m++) compute(&all, m);
    return atomic_load(&exhausted);
}

/* Part `part` of the members and their ranges of rows. */
static void forward(const void *context, int64_t part) {
    const Members *all = context;
    int64_t m = all->first + part / all->ranges, range = part % all->ranges;
    int64_t start = all->rows * range / all->ranges, rows = all->rows * (range + 1) / all->ranges - start;
    Network own = member(all, m);
    float *memory = new_floats(working_size(own.layers, own.count, FEW_ROWS));
    if (!memory) {
        atomic_store(all->exhausted, 1);
        return;
    }
    const float *x = all->inputs + start * own.layers[0].inputs;
    float *trace = all->trace + m * all->rows * trace_size(own);
    for (int64_t i = 0; i < own.count; i++) {
        int64_t outputs = own.layers[i].outputs, whole = all->rows * outputs;
        float *result = (i == own.count - 1 ? all->outputs + m * whole : trace) + start * outputs;
        int norm = own.layers[i].scale != 0;
        evaluate(x, rows, own.layers[i], memory, result, norm ? trace + whole + start * outputs : 0, norm ? trace + 2 * whole + start : 0);
        x = result;
        if (i < own.count - 1) trace += all->rows * traced(own.layers[i]);
    }
    free(memory);
}

/* Write the last layer's outputs to `outputs`, and those of the others to `trace`, one [rows, outputs] after another; after those
 * of a normalized layer, the numbers before scale and shift, [rows, outputs], and 1 / deviation, [rows].
 *
 * The `layers` [members, count] belong to the members of an ensemble with the same inputs, whose traces and outputs follow one
 * another. Returns 1 if memory is exhausted, like the functions below. */
API int dense_forward(const Layer *layers, int64_t members, int64_t count, const float *inputs, int64_t rows, float *trace,
                      float *outputs) {
    Members all = {.layers = layers, .count = count, .rows = rows, .inputs = inputs, .trace = trace, .outputs = outputs};
    return compute_members(all, members, forward, 1);
}

/* Write the last layer's outputs [rows, outputs] to `outputs`, without a trace. */
API int dense_outputs(const Layer *layers, int64_t count, const float *inputs, int64_t rows, float *outputs) {
    int64_t block = smaller(rows, BLOCK), size = working_size(layers, count, FEW_ROWS), widest = 0;
    for (int64_t i = 0; i < count - 1; i++)
        if (layers[i].outputs > widest) widest = layers[i].outputs;
    float *memory = new_floats(size + 2 * block * widest);
    if (!memory) return 1;
    for (int64_t start = 0; start < rows; start += BLOCK) {
        int64_t now = smaller(rows - start, BLOCK);
        const float *x = inputs + start * layers[0].inputs;
        for (int64_t i = 0; i < count; i++) {
            Layer layer = layers[i];
            float *hidden = memory + size + (i % 2) * block * widest;
            float *y = i == count - 1 ? outputs + start * layer.outputs : hidden;
            evaluate(x, now, layer, memory, y, 0, 0);
            x = y;
        }
    }
    free(memory);
    return 0;
}

/* Backpropagate `grad` [rows, outputs of the last layer] through one network. `memory` has 3 * `size` floats. */
static void backpropagate(const Layer *layers, int64_t count, const float *inputs, int64_t rows, const float *trace,
                          const float *outputs, const float *grad, float *const *into, float *input_grad, float *memory,
                          int64_t size) {
    float *used = memory, *copy = memory + size, *next = memory + 2 * size;
    float *const *into_norm = into ? into + 2 * count : 0;
    for (int64_t i = 0; i < count - 1; i++) {
        trace += rows * traced(layers[i]);
        if (into && layers[i].scale) into_norm += 2;
    }
    Layer last = layers[count - 1];
    if (last.activation != IDENTITY) {
        derive(grad, outputs, rows * last.outputs, last.activation, used);
        grad = used;
    }
    for (int64_t i = count - 1; i >= 0; i--) {
        Layer layer = layers[i];
        int64_t in = layer.inputs, out = layer.outputs;
        if (layer.scale) { /* the last layer has none, so that `grad` is in `used` */
            if (into) into_norm -= 2;
            normalize_rows_vjp(layer, rows, trace + rows * out, trace + 2 * rows * out, used, into ? into_norm : 0);
        }
        const float *x = i ? (trace -= rows * traced(layers[i - 1])) : inputs;
        if (into) {
            if (is_by_inputs(layer)) weight_grad(x, grad, rows, out, in, copy, into[2 * i]); /* the transpose */
            else weight_grad(grad, x, rows, in, out, copy, into[2 * i]);
            sum_rows(grad, rows, out, into[2 * i + 1]);
        }
        if (i || input_grad) {
            Product product = {.left = {grad, out, 1}, .rows = rows, .right = copy, .inner = out, .columns = in};
            if (is_by_inputs(layer)) transpose(layer.weight, in, out, copy);
            else product.right = with_padding(layer.weight, out, in, copy);
            if (i) product.outputs = x, product.activation = layers[i - 1].activation;
            grad = product.result = i ? next : input_grad;
            multiply(&product);
            next = used; /* the next gradient is computed from this one, so they need different memory */
            used = product.result;
        }
    }
}

static void backward(const void *context, int64_t part) {
    const Members *all = context;
    int64_t m = all->first + part;
    Network own = member(all, m);
    int64_t rows = all->rows, size = working_size(own.layers, own.count, rows);
    int64_t outputs = rows * own.layers[own.count - 1].outputs, inputs = rows * own.layers[0].inputs;
    float *memory = new_floats(3 * size);
    if (!memory) {
        atomic_store(all->exhausted, 1);
        return;
    }
    backpropagate(own.layers, own.count, all->inputs, rows, all->trace + m * rows * trace_size(own), all->outputs + m * outputs,
                  all->grad + m * outputs, all->into ? all->into + m * 2 * own.count : 0,
                  all->input_grad ? all->input_grad + m * inputs : 0, memory, size);
    free(memory);
}

/* Backpropagate `grad` [members, rows, outputs of the last layer]; `trace` and `outputs` are those of `dense_forward`.
 *
 * The gradients of weights and biases are written to `into` [members, 2 * count], if it is not NULL, and the gradients with
 * respect to the inputs to `input_grad` [members, rows, inputs], if that is not NULL. */
API int dense_backward(const Layer *layers, int64_t members, int64_t count, const float *inputs, int64_t rows,
                       const float *trace, const float *outputs, const float *grad, float *const *into,
                       float *input_grad) {
    Members all = {.layers = layers, .count = count, .rows = rows, .inputs = inputs, .trace = (float *)trace,
                   .outputs = (float *)outputs, .grad = grad, .into = into, .input_grad = input_grad};
    return compute_members(all, members, backward, 0);
}

/* Write how `outputs` change, [rows, outputs], if the weights and biases change by `direction` [2 * count]. No layer is
 * normalized. */
API int dense_jvp(const Layer *layers, int64_t count, const float *inputs, int64_t rows, const float *trace,
                  const float *outputs, const float *const *direction, float *change) {
    int64_t size = working_size(layers, count, rows);
    float *memory = new_floats(5 * size);
    if (!memory) return 1;
    float *copy = memory, *before = memory + size, *now = memory + 2 * size, *further = memory + 3 * size;
    float *zeros = memory + 4 * size;
    memset(zeros, 0, 4 * size);
    for (int64_t i = 0; i < count; i++) {
        Layer layer = layers[i], moved = layer, linear = layer;
        int64_t whole = rows * layer.outputs;
        const float *y = i == count - 1 ? outputs : trace;
        float *result = i == count - 1 ? change : now;
        moved.weight = direction[2 * i], moved.bias = direction[2 * i + 1], linear.bias = zeros;
        moved.activation = linear.activation = IDENTITY;
        evaluate_linear(inputs, rows, moved, copy, result);
        if (i) {
            evaluate_linear(before, rows, linear, copy, further);
            for (int64_t j = 0; j < whole; j++) result[j] += further[j];
        }
        if (layer.activation != IDENTITY) derive(result, y, whole, layer.activation, result);
        inputs = y;
        trace += whole;
        now = before;
        before = result;
    }
    free(memory);
    return 0;
}
