#include "simulator/capture/operator_benchmark.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <exception>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/graph/ivalue_constant.h"

namespace legoai::sim {
namespace {

using graph::Argument;
using graph::Instruction;
using graph::Trace;

struct Sample {  // one instruction of each distinct operator
  const Trace* trace;
  const Instruction* instruction;
  std::string signature;
};

bool IsTimed(OpClass op_class) {
  return op_class != OpClass::kView && op_class != OpClass::kControl && op_class != OpClass::kCollective;
}

absl::StatusOr<std::vector<Sample>> DistinctOperators(const std::vector<const Trace*>& traces) {
  std::map<std::string, Sample> samples;
  for (const Trace* trace : traces) {
    auto rows = ResolveOperators(*trace);
    if (!rows.ok()) return rows.status();
    for (const Instruction& instruction : trace->instructions) {
      if (instruction.kind != Instruction::Kind::kOperator || !IsTimed((*rows)[instruction.operator_index]->op_class)) continue;
      std::string signature = SignatureOf(graph::InstructionView(*trace, instruction));
      samples.try_emplace(signature, Sample{trace, &instruction, signature});
    }
  }
  std::vector<Sample> list;
  for (auto& [signature, sample] : samples) list.push_back(std::move(sample));
  return list;
}

// One operator with arguments of its own, ready to be called again and again.
class Call {
 public:
  explicit Call(const Sample& sample) : trace_(*sample.trace), op_(Find(trace_.OperatorName(*sample.instruction))) {
    const auto& schema = op_.schema().arguments();
    for (int i = 0; i < sample.instruction->argument_count; ++i) {
      stack_.push_back(Make(trace_.arguments[sample.instruction->first_argument + i], *schema[i].type()));
    }
  }
  void Run() const {
    torch::jit::Stack stack = stack_;
    op_.callBoxed(stack);
  }

 private:
  static c10::OperatorHandle Find(const std::string& full_name) {
    const size_t dot = full_name.find('.', full_name.find("::"));
    const std::string overload = dot == std::string::npos ? "" : full_name.substr(dot + 1);
    return c10::Dispatcher::singleton().findSchemaOrThrow(full_name.substr(0, dot).c_str(), overload.c_str());
  }

  // The same value is the same tensor.
  at::Tensor TensorOf(uint32_t value) {
    at::Tensor& tensor = tensors_[value];
    if (tensor.defined()) return tensor;
    const graph::Geometry& geometry = trace_.geometries[trace_.values[value].geometry];
    tensor = at::empty_strided(geometry.sizes, geometry.strides, graph::ToScalarType(geometry.dtype));
    tensor.fill_(tensor.is_floating_point() ? 1 : 0);
    return tensor;
  }

  template <class Element>
  c10::IValue MakeList(const std::vector<int64_t>& ids) {
    c10::List<Element> list;
    for (int64_t id : ids) list.push_back(id >= 0 ? Element(TensorOf(static_cast<uint32_t>(id))) : Element());
    return list;
  }

  c10::IValue Make(const Argument& argument, const c10::Type& type) {
    switch (argument.kind) {
      case Argument::Kind::kConstant: return graph::ToIValue(trace_.constants[argument.index], type, c10::kCPU);
      case Argument::Kind::kWrappedNumber: return graph::ToWrappedNumber(trace_.constants[argument.index]);
      case Argument::Kind::kValue: return TensorOf(argument.index);
      case Argument::Kind::kUndefined: return at::Tensor();
      case Argument::Kind::kList: return MakeList<at::Tensor>(trace_.lists[argument.index]);
      case Argument::Kind::kOptionalList: return MakeList<std::optional<at::Tensor>>(trace_.lists[argument.index]);
    }
    return {};
  }

  const Trace& trace_;
  c10::OperatorHandle op_;
  torch::jit::Stack stack_;
  std::map<uint32_t, at::Tensor> tensors_;
};

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Median seconds of at least three calls and some milliseconds.
double Median(const Call& call) {
  std::vector<double> runs;
  const double end = Now() + 0.004;
  while (runs.size() < 3 || (Now() < end && runs.size() < 2000)) {
    const double begin = Now();
    call.Run();
    runs.push_back(Now() - begin);
  }
  std::nth_element(runs.begin(), runs.begin() + runs.size() / 2, runs.end());
  return runs[runs.size() / 2];
}

// One core's part: its own tensors, in step with the others. A failure is kept and the others are not left waiting.
class Worker {
 public:
  Worker(const std::vector<Sample>& samples, std::barrier<>& in_step) : samples_(samples), in_step_(in_step) {}

  void Run() {
    at::set_num_threads(1);
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (const Sample& sample : samples_) {
      std::optional<Call> call;
      Guard(sample, [&] {
        call.emplace(sample);
        call->Run();
      });
      in_step_.arrive_and_wait();
      seconds.push_back(0);
      if (failure.empty()) Guard(sample, [&] { seconds.back() = Median(*call); });
    }
  }

  std::vector<double> seconds;
  std::string failure;

 private:
  template <class Work>
  void Guard(const Sample& sample, Work work) {
    try {
      work();
    } catch (const c10::Error& error) {
      failure = absl::StrCat(sample.signature, ": ", error.what_without_backtrace());
    } catch (const std::exception& error) {
      failure = absl::StrCat(sample.signature, ": ", error.what());
    }
  }

  const std::vector<Sample>& samples_;
  std::barrier<>& in_step_;
};

}  // namespace

absl::StatusOr<BenchmarkTable> BenchmarkOperators(const std::vector<const Trace*>& traces, int64_t busy_cores) {
  auto samples = DistinctOperators(traces);
  if (!samples.ok()) return samples.status();
  const int64_t cores = std::max<int64_t>(1, busy_cores);
  std::barrier<> in_step(cores);
  std::vector<Worker> workers(cores, Worker(*samples, in_step));
  std::vector<std::thread> threads;
  for (Worker& worker : workers) threads.emplace_back([&worker] { worker.Run(); });
  for (auto& thread : threads) thread.join();
  BenchmarkTable table;
  for (size_t i = 0; i < samples->size(); ++i) {
    double sum = 0;
    for (const Worker& worker : workers) {
      if (!worker.failure.empty()) return absl::InternalError(absl::StrCat("cannot benchmark ", worker.failure));
      sum += worker.seconds[i];
    }
    table.Set((*samples)[i].signature, sum / static_cast<double>(cores));
  }
  return table;
}

}  // namespace legoai::sim
