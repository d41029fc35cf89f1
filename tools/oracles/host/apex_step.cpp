// One step of Apex's hysteresis kernel on the host. KERNEL is the function extracted from its file, which is plain C++ except for
// `__global__`.
#include <cmath>
using std::isfinite;
#define __global__
#include KERNEL

extern "C" void step(float* scale, int* good_steps, int* hysteresis_tracker, float found_inf, double growth_factor,
                     double backoff_factor, int growth_interval, int hysteresis) {
  update_scale_hysteresis_cuda_kernel(scale, good_steps, hysteresis_tracker, &found_inf, growth_factor,
                                      backoff_factor, growth_interval, hysteresis);
}
