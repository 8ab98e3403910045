#include "simulator/measure/grid_runner.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/comm/status_error.h"
#include "worker/graph/fake/fake_device.h"
#include "worker/graph/ivalue_constant.h"
#include "worker/graph/recorder.h"

namespace legoai::sim {
namespace {

using torch::jit::Stack;

void FillTensor(const TensorSpec& spec, at::Tensor& tensor) {
  switch (spec.fill) {
    case Fill::kNormal: tensor.normal_(); break;
    case Fill::kPositive: tensor.uniform_(0.01, 0.02); break;
    case Fill::kZero: tensor.zero_(); break;
    case Fill::kIds: tensor.random_(spec.below); break;
  }
}

// Turns arguments as data into those of a call. `filled`: with contents, which the fake device has no memory for.
class ArgumentMaker {
 public:
  ArgumentMaker(c10::Device device, bool filled) : device_(device), filled_(filled) {}

  Stack Make(const OperatorCall& call, const c10::OperatorHandle& op, const Stack& before_arguments,
             const Stack& before_results) {
    const auto& schema = op.schema().arguments();
    TORCH_CHECK(call.arguments.size() <= schema.size(), call.name, " takes ", schema.size(), " arguments");
    Stack stack;
    for (size_t i = 0; i < schema.size(); ++i) {
      if (i >= call.arguments.size()) {
        TORCH_CHECK(schema[i].default_value().has_value(), call.name, " needs its argument ", schema[i].name());
        stack.push_back(*schema[i].default_value());
        continue;
      }
      const GridArgument& argument = call.arguments[i];
      if (const auto* place = std::get_if<BeforeArgument>(&argument)) {
        stack.push_back(before_arguments.at(place->index));
      } else if (const auto* place = std::get_if<BeforeResult>(&argument)) {
        stack.push_back(before_results.at(place->index));
      } else {
        stack.push_back(MakeOne(argument, *schema[i].real_type()));
      }
    }
    return stack;
  }

  // In the order of making.
  const std::vector<at::Tensor>& tensors() const { return tensors_; }

 private:
  c10::IValue MakeOne(const GridArgument& argument, const c10::Type& type) {
    if (const auto* spec = std::get_if<TensorSpec>(&argument)) return MakeTensor(*spec);
    if (const auto* constant = std::get_if<graph::Constant>(&argument)) return graph::ToIValue(*constant, type, device_);
    const TensorList& list = std::get<TensorList>(argument);
    c10::List<at::Tensor> made;
    for (int64_t i = 0; i < list.count; ++i) made.push_back(list.same && i > 0 ? made.get(0) : MakeTensor(list.each));
    return made;
  }

  at::Tensor MakeTensor(const TensorSpec& spec) {
    const auto options = at::TensorOptions().dtype(graph::ToScalarType(spec.dtype)).device(device_);
    at::Tensor tensor =
        spec.strides.empty() ? at::empty(spec.sizes, options) : at::empty_strided(spec.sizes, spec.strides, options);
    if (filled_) FillTensor(spec, tensor);
    tensors_.push_back(tensor);
    return tensor;
  }

  const c10::Device device_;
  const bool filled_;
  std::vector<at::Tensor> tensors_;
};

c10::OperatorHandle Find(const OperatorCall& call) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(call.name.c_str(), call.overload.c_str());
}

struct Prepared {
  Stack arguments, before_results;
  std::vector<at::Tensor> made;
};

// Everything but the call itself.
Prepared Prepare(const GridPoint& point, c10::Device device, bool filled) {
  ArgumentMaker maker(device, filled);
  Stack before_arguments, results;
  if (point.before) {
    const c10::OperatorHandle op = Find(*point.before);
    before_arguments = maker.Make(*point.before, op, {}, {});
    results = before_arguments;
    op.callBoxed(results);
  }
  Stack arguments = maker.Make(point.call, Find(point.call), before_arguments, results);
  return {std::move(arguments), std::move(results), maker.tensors()};
}

graph::Trace RecordPoint(const GridPoint& point) {
  FakeDevice device;
  graph::Recorder recorder(&device);
  recorder.SetRecording(false);
  Prepared prepared = Prepare(point, c10::kCPU, /*filled=*/false);
  int index = 0;
  auto input = [&](const at::Tensor& tensor) {
    if (tensor.defined()) recorder.Input(absl::StrCat(index++), tensor, graph::Category::kInput);
  };
  for (const at::Tensor& tensor : prepared.made) input(tensor);
  for (const c10::IValue& result : prepared.before_results) input(result.toTensor());
  recorder.SetRecording(true);
  Find(point.call).callBoxed(prepared.arguments);
  recorder.SetRecording(false);
  return recorder.Finish();
}

absl::StatusOr<PointFacts> FactsOfTrace(const GridPoint& point, const graph::Trace& trace) {
  PointFacts result;
  for (const graph::Storage& storage : trace.storages) result.tensor_bytes += storage.bytes;
  const OperatorRow* row = FindOperator(point.call.name);
  if (row == nullptr) return absl::NotFoundError(absl::StrCat(point.call.name, " is not known to the cost models"));
  for (const graph::Instruction& instruction : trace.instructions) {
    if (instruction.kind != graph::Instruction::Kind::kOperator) continue;
    const graph::InstructionView view(trace, instruction);
    if (FindOperator(view.name()) != row) {
      return absl::InternalError(absl::StrCat(point.call.name, " is carried out as ", view.name(), ", which a step records"));
    }
    result.facts = FactsOf(view, *row);
    return result;
  }
  return absl::InternalError(absl::StrCat(point.call.name, " records nothing"));
}

}  // namespace

absl::StatusOr<PointFacts> FactsOfPoint(const GridPoint& point) {
  graph::Trace trace;
  const absl::Status status = comm::CatchStatus([&] {
    trace = RecordPoint(point);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return FactsOfTrace(point, trace);
}

struct PointCall::Impl {
  c10::OperatorHandle op;
  Stack arguments;
};

PointCall::PointCall(const c10::OperatorHandle& op, Stack arguments) : impl_(new Impl{op, std::move(arguments)}) {}
PointCall::~PointCall() = default;

absl::StatusOr<std::unique_ptr<PointCall>> PointCall::Create(const GridPoint& point, c10::Device device) {
  std::unique_ptr<PointCall> made;
  const absl::Status status = comm::CatchStatus([&]() -> absl::Status {
    try {
      made.reset(new PointCall(Find(point.call), Prepare(point, device, /*filled=*/true).arguments));
    } catch (const c10::OutOfMemoryError& error) {
      return absl::ResourceExhaustedError(error.what_without_backtrace());
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return made;
}

absl::Status PointCall::Run() {
  return comm::CatchStatus([&]() -> absl::Status {
    Stack stack = impl_->arguments;
    try {
      impl_->op.callBoxed(stack);
    } catch (const c10::OutOfMemoryError& error) {
      return absl::ResourceExhaustedError(error.what_without_backtrace());
    }
    return absl::OkStatus();
  });
}

}  // namespace legoai::sim
