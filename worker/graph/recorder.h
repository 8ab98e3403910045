// Records every operator below autograd, of a real run or of one on a fake device, as a Trace.
//
// A boxed fallback on one dispatch key sees each leaf operator: one with a kernel for the target backend. A thread's hooks run
// above the recorder on the same key. The recorder holds storage ids, never tensors (an extra reference would change autograd's
// behaviour). One recorder at a time in a process; it records on every thread that carries the dispatch key in its thread-local
// state.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "core/trace/annotation.h"
#include "core/trace/trace.h"

namespace legoai::graph {

// How an operator is executed: the default calls its kernel; the simulator's fake device computes shapes only.
class OperatorRunner {
 public:
  virtual ~OperatorRunner() = default;
  // Consumes the arguments on the stack and leaves the results. `base` is the index of the first argument.
  virtual void Run(const c10::OperatorHandle& op, c10::DispatchKeySet after, torch::jit::Stack* stack, size_t base) = 0;
};

// Intercepts each operator of a thread above the recorder: an operator that it handles itself is neither recorded nor executed.
class OperatorHook {
 public:
  virtual ~OperatorHook() = default;
  // Consumes the arguments on the stack and leaves the results, with or without calling `run`. It is called for a composite
  // operator first, and within its `run` for the operators that it consists of.
  virtual void OnOperator(const c10::OperatorHandle& op, torch::jit::Stack* stack, absl::FunctionRef<void()> run) = 0;
};

// During its lifetime, this thread's operators go through `hook`, which is not owned. Scopes nest; only the innermost hook is
// called.
class OperatorHookScope {
 public:
  explicit OperatorHookScope(OperatorHook* hook);
  ~OperatorHookScope();
  OperatorHookScope(const OperatorHookScope&) = delete;
  OperatorHookScope& operator=(const OperatorHookScope&) = delete;

 private:
  OperatorHook* const previous_;
  const c10::impl::IncludeDispatchKeyGuard guard_;
};

// For what stands for one operator and consists of several, `run`: the thread's hook sees `op` alone, whose arguments are on the
// stack; `run` takes them off and leaves the results.
void RunAsOperator(const c10::OperatorHandle& op, torch::jit::Stack* stack, absl::FunctionRef<void()> run);

class Recorder {
 public:
  // `runner` is not owned and may be null: real kernels run.
  explicit Recorder(OperatorRunner* runner = nullptr);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // A tensor that exists before the step and is bound at execution. Call it before the step, once per storage.
  void Input(const std::string& name, const at::Tensor& tensor, Category category);
  // What the caller reads after the step.
  void Output(const std::string& name, const at::Tensor& tensor);
  // Off: operators are executed (by the runner) but not recorded. On at construction.
  void SetRecording(bool on);
  // Ends the recording. Inner storages that are still alive are listed in the Trace's warnings.
  Trace Finish();

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

// Sets the category of the storage of `tensor` from now on, if there is a recorder (a gradient is known to be one only when it is
// ready).
void TagStorage(const at::Tensor& tensor, Category category);

}  // namespace legoai::graph
