// Minimal replacement for the parts of OneFlow that its kernel uses: named tensors, named attributes, a log, and a list of kernels.
#pragma once
#include <algorithm>
#include <cfloat>
#include <cstdint>
#include <ostream>
#include <string>

namespace oneflow {

enum class DeviceType { kCPU };

struct Silence {
  template <typename T>
  const Silence& operator<<(const T&) const { return *this; }
};
constexpr int INFO = 0;
inline Silence LOG(int) { return {}; }

namespace user_op {

struct Tensor {
  void* data;
  template <typename T>
  const T* dptr() const { return static_cast<const T*>(data); }
  template <typename T>
  T* mut_dptr() const { return static_cast<T*>(data); }
};

struct KernelComputeContext {
  Tensor count_not_finite, loss_scale, good_step_counter;
  int64_t increment_period;
  float multiplier;

  const Tensor* Tensor4ArgNameAndIndex(const std::string& name, int) const {
    if (name == "count_not_finite") return &count_not_finite;
    return name == "loss_scale" ? &loss_scale : &good_step_counter;
  }
  template <typename T>
  T Attr(const std::string& name) const {
    return name == "increment_period" ? static_cast<T>(increment_period) : static_cast<T>(multiplier);
  }
};

struct OpKernel {
  virtual ~OpKernel() = default;
  virtual void Compute(KernelComputeContext* ctx) const = 0;
  virtual bool AlwaysComputeWhenAllOutputsEmpty() const = 0;
};

inline DeviceType HobDeviceType() { return DeviceType::kCPU; }

struct Registration {
  template <typename Kernel>
  Registration& SetCreateFn() { return *this; }
  Registration& SetIsMatchedHob(bool) { return *this; }
};

}  // namespace user_op
}  // namespace oneflow

#define REGISTER_USER_KERNEL(name) static const auto registered = oneflow::user_op::Registration()
