// One step of OneFlow's CPU kernel. KERNEL is its file, compiled as it is.
#include KERNEL

extern "C" void step(int64_t count_not_finite, float* loss_scale, int64_t* good_steps, int64_t period, float multiplier) {
  oneflow::user_op::KernelComputeContext context{{&count_not_finite}, {loss_scale}, {good_steps}, period, multiplier};
  const oneflow::DynamicLossScaleScheduleCpuKernel kernel;
  static_cast<const oneflow::user_op::OpKernel&>(kernel).Compute(&context);
}
