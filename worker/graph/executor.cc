#include "worker/graph/executor.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/operators/operator_table.h"
#include "core/trace/effects.h"
#include "core/trace/module_slices.h"
#include "proto/status.h"
#include "worker/comm/cpu_tensors.h"
#include "worker/comm/runtime.h"
#include "worker/comm/status_error.h"
#include "worker/comm/step_timeline.h"
#include "worker/graph/fused_operator.h"
#include "worker/graph/ivalue_constant.h"

namespace legoai::graph {
namespace {

using Clock = std::chrono::steady_clock;

// An instruction as the executor carries it out: what is the same in every run stands ready.
struct Step {
  enum class Kind : uint8_t { kCall, kFree };
  struct TensorArgument {
    uint32_t position = 0, value = 0;
  };
  struct ListArgument {
    uint32_t position = 0;
    bool is_optional = false;
    const std::vector<int64_t>* ids = nullptr;
  };
  struct Result {  // that brings a new storage
    uint32_t position = 0;
    int32_t element = -1;  // of a list
    uint32_t value = 0;
  };
  Kind kind = Kind::kCall;
  uint16_t stream = 0;
  uint32_t instruction = 0;
  uint32_t storage = 0;  // of kFree
  const c10::OperatorHandle* op = nullptr;
  std::vector<c10::IValue> arguments;  // None where a tensor or a list of tensors belongs
  std::vector<TensorArgument> tensors;
  std::vector<ListArgument> lists;
  std::vector<Result> born;        // in the order of results
  bool pads_results = false;       // the device's kernel pads what only its own gradient reads
  std::vector<uint32_t> reshaped;  // values whose tensor the operator gives another geometry in place
};

// A value's tensor. That of a view is kept from run to run: only its storage changes.
struct ValueState {
  at::Tensor tensor;
  bool is_current = false;  // `tensor` has the storage of this run
  bool is_born = false;     // an operator makes the tensor
  const Geometry* geometry = nullptr;
  c10::ScalarType type = c10::ScalarType::Undefined;
};

absl::StatusOr<c10::OperatorHandle> FindOperator(const std::string& full_name) {
  const size_t dot = full_name.find('.');
  const std::string overload = dot == std::string::npos ? "" : full_name.substr(dot + 1);
  const auto op = c10::Dispatcher::singleton().findSchema({full_name.substr(0, dot), overload});
  if (!op) return absl::NotFoundError(absl::StrCat("operator ", full_name, " is not registered in this process"));
  return *op;
}

// Runs `f`, turning exceptions into a Status: of a failed communication its own, by which the rank that is to blame is found.
template <class F>
absl::Status Guarded(F f) {
  return comm::CatchStatus([&] {
    f();
    return absl::OkStatus();
  });
}

// The phases of a run in the timeline that listens; what is of none is left out.
class PhaseMarks {
 public:
  ~PhaseMarks() { Close(); }
  void At(Phase phase) {
    phase = SpanPhase(phase);
    if (timeline_ == nullptr || phase == phase_) return;
    Close();
    phase_ = phase;
    if (phase != Phase::kInit) entry_ = timeline_->OpenPhase(phase);
  }

 private:
  void Close() {
    if (phase_ != Phase::kInit) timeline_->Close(entry_);
  }
  comm::StepTimeline* const timeline_ = comm::StepTimeline::Current();
  Phase phase_ = Phase::kInit;
  size_t entry_ = 0;
};

}  // namespace

struct Executor::Impl {
  Impl(const Trace& trace, c10::Device device)
      : trace(trace),
        device(device),
        keys(c10::computeDispatchKey(std::nullopt, std::nullopt, device)),
        nothing(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0, c10::DataPtr(nullptr, device),
                                                      /*allocator=*/nullptr, /*resizable=*/false)),
        storages(trace.storages.size()),
        values(trace.values.size()),
        values_of(trace.storages.size()),
        is_bound(trace.storages.size()),
        is_output(trace.storages.size()) {}

  const Trace& trace;
  const c10::Device device;
  const c10::DispatchKeySet keys;
  const c10::Storage nothing;  // of tensors whose storage is not there
  std::vector<c10::OperatorHandle> operators;
  std::vector<Step> steps;
  std::vector<c10::Storage> storages;
  std::vector<ValueState> values;
  std::vector<std::vector<uint32_t>> values_of;
  std::vector<char> is_bound, is_output;
  torch::jit::Stack stack;
  int64_t calls = 0;
  bool uses_runtime = false;

  absl::Status Prepare() {
    for (const Operator& op : trace.operators) {
      ASSIGN_OR_RETURN(auto handle, FindOperator(op.name));
      operators.push_back(handle);
      uses_runtime |= FindEffect(op.name) != nullptr;
    }
    for (const auto& [_, value] : trace.outputs) is_output[trace.values[value].storage] = true;
    return Guarded([this] {
      for (uint32_t value = 0; value < values.size(); ++value) {
        values_of[trace.values[value].storage].push_back(value);
        values[value].geometry = &trace.geometries[trace.values[value].geometry];
        values[value].type = ToScalarType(values[value].geometry->dtype);
      }
      FillConstantStorages();
      std::vector<char> born(storages.size());
      for (size_t i = 0; i < born.size(); ++i) born[i] = trace.storages[i].kind != StorageKind::kInner;
      for (uint32_t i = 0; i < trace.instructions.size(); ++i) AddStep(i, &born);
    });
  }

  void FillConstantStorages() {
    for (size_t i = 0; i < storages.size(); ++i) {
      const Storage& record = trace.storages[i];
      if (record.kind != StorageKind::kConstant) continue;
      const at::Tensor memory = at::empty({static_cast<int64_t>(record.contents.size())}, at::TensorOptions().dtype(at::kByte));
      std::memcpy(memory.mutable_data_ptr(), record.contents.data(), record.contents.size());
      storages[i] = memory.to(device).storage();
      is_bound[i] = true;
    }
  }

  void AddStep(uint32_t index, std::vector<char>* born) {
    const Instruction& instruction = trace.instructions[index];
    Step step;
    step.instruction = index;
    if (instruction.kind == Instruction::Kind::kResize) return;  // the operator before it does that again
    if (instruction.kind == Instruction::Kind::kFree) {
      step.kind = Step::Kind::kFree;
      step.storage = instruction.immediate;
      if (trace.storages[step.storage].kind == StorageKind::kInner && !is_output[step.storage]) steps.push_back(std::move(step));
      return;
    }
    AddResults(instruction, born, &step);
    const Operands operands = OperandsOf(trace, instruction);
    for (uint32_t value : operands.writes) {
      const auto& results = operands.results;
      if (!results.empty() && std::find(results.begin(), results.end(), value) == results.end()) step.reshaped.push_back(value);
    }
    // A view makes nothing and writes nothing: its results are geometries of storages that are there.
    const bool is_view = !operands.results.empty() && operands.writes.empty() && step.born.empty() && !operands.has_host_result;
    if (is_view) return;
    step.op = &operators[instruction.operator_index];
    step.stream = instruction.stream;
    const sim::OperatorRow* const row = device.is_cuda() ? sim::FindOperator(trace.OperatorName(instruction)) : nullptr;
    step.pads_results = row != nullptr && row->results == sim::ResultRule::kAttention;
    AddArguments(instruction, &step);
    steps.push_back(std::move(step));
    ++calls;
  }

  void AddResults(const Instruction& instruction, std::vector<char>* born, Step* step) {
    const auto add = [&](uint32_t position, int32_t element, uint32_t value) {
      char& is_born = (*born)[trace.values[value].storage];
      if (!is_born) {
        step->born.push_back({position, element, value});
        values[value].is_born = true;
      }
      is_born = true;
    };
    for (uint32_t i = 0; i < instruction.result_count; ++i) {
      const Argument& result = trace.results[instruction.first_result + i];
      if (result.kind == Argument::Kind::kValue) add(i, -1, result.index);
      if (result.kind != Argument::Kind::kList) continue;
      const auto& ids = trace.lists[result.index];
      for (size_t k = 0; k < ids.size(); ++k) {
        if (ids[k] >= 0) add(i, static_cast<int32_t>(k), static_cast<uint32_t>(ids[k]));
      }
    }
  }

  void AddArguments(const Instruction& instruction, Step* step) {
    const auto& schema = step->op->schema();
    TORCH_CHECK(schema.arguments().size() == instruction.argument_count, schema.name(), " takes ", schema.arguments().size(),
                " arguments here, ", instruction.argument_count, " in the trace");
    step->arguments.resize(instruction.argument_count);
    for (uint32_t i = 0; i < instruction.argument_count; ++i) {
      const Argument& argument = trace.arguments[instruction.first_argument + i];
      c10::IValue& ready = step->arguments[i];
      switch (argument.kind) {
        case Argument::Kind::kConstant:
          ready = ToIValue(trace.constants[argument.index], *schema.arguments()[i].type(), device);
          break;
        case Argument::Kind::kWrappedNumber: ready = ToWrappedNumber(trace.constants[argument.index]); break;
        case Argument::Kind::kUndefined: ready = at::Tensor(); break;
        case Argument::Kind::kValue: step->tensors.push_back({i, argument.index}); break;
        case Argument::Kind::kList:
        case Argument::Kind::kOptionalList:
          step->lists.push_back({i, argument.kind == Argument::Kind::kOptionalList, &trace.lists[argument.index]});
          break;
      }
    }
  }

  const at::Tensor& TensorOf(uint32_t value) {
    ValueState& state = values[value];
    if (!state.is_current) MakeCurrent(trace.values[value].storage, &state);
    return state.tensor;
  }
  void MakeCurrent(uint32_t storage, ValueState* state) {
    TORCH_CHECK(storages[storage], "storage ", storage, " ", trace.storages[storage].name, " is not bound");
    if (state->tensor.defined()) {
      state->tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(storages[storage]);
    } else {
      state->tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storages[storage]), keys,
                                                               c10::scalarTypeToTypeMeta(state->type));
      const Geometry& geometry = *state->geometry;
      state->tensor.unsafeGetTensorImpl()->set_sizes_and_strides(geometry.sizes, geometry.strides, geometry.offset);
    }
    state->is_current = true;
  }

  template <class Element>
  c10::IValue ListOf(const std::vector<int64_t>& ids) {
    c10::List<Element> list;
    list.reserve(ids.size());
    for (int64_t id : ids) list.push_back(id == -2 ? Element() : Element(id < 0 ? at::Tensor() : TensorOf(id)));
    return list;
  }

  bool IsAsCaptured(const at::Tensor& tensor, const ValueState& state) const {
    const Geometry& geometry = *state.geometry;
    return tensor.sizes() == geometry.sizes && tensor.strides() == geometry.strides &&
           tensor.storage_offset() == geometry.offset && tensor.scalar_type() == state.type;
  }

  // Attention's log-sum-exp, which CUDA pads, goes whole to the operator's own backward. What else differs on a device the
  // program has as the device gives it (core/trace/device_results.h).
  void Adopt(const Step::Result& result, const at::Tensor& tensor, const Step& step) {
    ValueState& state = values[result.value];
    const uint32_t storage = trace.values[result.value].storage;
    const bool is_padded = step.pads_results && result.position > 0 && values_of[storage].size() == 1;
    TORCH_CHECK((is_padded && tensor.scalar_type() == state.type) || IsAsCaptured(tensor, state),
                trace.Line(trace.instructions[step.instruction], true), " gave sizes ", tensor.sizes(), ", strides ",
                tensor.strides(), ", type ", tensor.scalar_type());
    storages[storage] = tensor.storage();
    state.tensor = tensor;
    state.is_current = true;
  }

  void Call(const Step& step) {
    std::optional<comm::StreamScope> stream;
    if (step.stream != comm::kCompute) stream.emplace(step.stream);
    stack.assign(step.arguments.begin(), step.arguments.end());
    for (const auto& argument : step.tensors) stack[argument.position] = TensorOf(argument.value);
    for (const auto& list : step.lists) {
      stack[list.position] = list.is_optional ? ListOf<std::optional<at::Tensor>>(*list.ids) : ListOf<at::Tensor>(*list.ids);
    }
    step.op->redispatchBoxed(keys, &stack);
    for (const auto& result : step.born) {
      const c10::IValue& made = stack[result.position];
      Adopt(result, result.element < 0 ? made.toTensor() : made.toListRef()[result.element].toTensor(), step);
    }
    for (uint32_t value : step.reshaped) values[value].tensor.reset(), values[value].is_current = false;
  }

  void Forget(uint32_t storage) {
    for (uint32_t value : values_of[storage]) {
      ValueState& state = values[value];
      if (!state.is_current) continue;
      state.is_current = false;
      // Somebody may have kept the tensor, as the caller an output.
      if (state.is_born || state.tensor.use_count() > 1) {
        state.tensor.reset();
      } else {
        state.tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(nothing);
      }
    }
    storages[storage] = c10::Storage();
  }
  void ForgetInner() {
    stack.clear();
    for (uint32_t i = 0; i < storages.size(); ++i) {
      if (!is_bound[i] && storages[i]) Forget(i);
    }
  }

  void CallTraced(const Step& step) {
    const auto timed = comm::TimelineScope::Operator(step.instruction);
    Call(step);
  }

  // `seconds` and `done` may be null. A free counts to the operator before it.
  void RunSteps(bool traced, uint32_t* at, PhaseMarks* phases, std::vector<double>* seconds, std::atomic<int64_t>* done) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    const comm::CpuBlockReuse reuse;  // every run makes tensors of the same sizes
    ForgetInner();
    uint32_t timed = 0;
    auto begin = Clock::now();
    for (const Step& step : steps) {
      *at = step.instruction;
      if (step.kind == Step::Kind::kFree) {
        Forget(step.storage);
      } else {
        phases->At(trace.instructions[step.instruction].phase);
        traced ? CallTraced(step) : Call(step);
        timed = step.instruction;
      }
      if (done != nullptr) done->fetch_add(1, std::memory_order_relaxed);
      if (seconds == nullptr) continue;
      const auto end = Clock::now();
      (*seconds)[timed] += std::chrono::duration<double>(end - begin).count();
      begin = end;
    }
    stack.clear();
  }
};

Executor::Executor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executor::~Executor() = default;

absl::StatusOr<std::unique_ptr<Executor>> Executor::Create(const Trace& trace, c10::Device device) {
  KernelCounts counts;
  std::vector<std::string> notes;  // a trainer prepared them before, and told
  RETURN_IF_ERROR(PrepareKernels(trace, device, &counts, &notes));
  auto impl = std::make_unique<Impl>(trace, device);
  RETURN_IF_ERROR(impl->Prepare());
  return std::unique_ptr<Executor>(new Executor(std::move(impl)));
}

absl::Status Executor::Bind(const std::string& name, const at::Tensor& tensor) {
  const auto it = impl_->trace.inputs.find(name);
  if (it == impl_->trace.inputs.end()) return absl::NotFoundError(absl::StrCat("the trace has no input ", name));
  const Value& value = impl_->trace.values[it->second];
  const Geometry& geometry = impl_->trace.geometries[value.geometry];
  const int64_t bytes = impl_->trace.storages[value.storage].bytes;
  return Guarded([&] {
    TORCH_CHECK(tensor.sizes() == geometry.sizes && tensor.strides() == geometry.strides &&
                    tensor.scalar_type() == ToScalarType(geometry.dtype) && tensor.storage_offset() == geometry.offset &&
                    static_cast<int64_t>(tensor.storage().nbytes()) == bytes,
                "input ", name, " has sizes ", at::IntArrayRef(geometry.sizes), ", strides ", at::IntArrayRef(geometry.strides),
                " and a storage of ", bytes, " bytes in the trace; given are ", tensor.sizes(), ", ", tensor.strides(), " and ",
                tensor.storage().nbytes());
    impl_->Forget(value.storage);
    impl_->storages[value.storage] = tensor.storage();
    impl_->is_bound[value.storage] = true;
  });
}

absl::Status Executor::Run() { return RunSteps(/*traced=*/false, nullptr, nullptr); }
absl::Status Executor::RunTraced() { return RunSteps(/*traced=*/true, nullptr, nullptr); }

absl::Status Executor::RunTimed(std::vector<double>* seconds, std::atomic<int64_t>* done) {
  seconds->assign(impl_->trace.instructions.size(), 0);
  return RunSteps(/*traced=*/false, seconds, done);
}

absl::Status Executor::RunSteps(bool traced, std::vector<double>* seconds, std::atomic<int64_t>* done) {
  uint32_t at = 0;
  PhaseMarks phases;  // the last one lasts until all streams have come to their end
  absl::Status status = Guarded([&] { impl_->RunSteps(traced, &at, &phases, seconds, done); });
  if (impl_->uses_runtime) {
    const absl::Status drained = comm::CurrentRuntime().Drain();
    if (status.ok()) return drained;
  }
  if (status.ok()) return status;
  const Instruction& instruction = impl_->trace.instructions[at];
  return absl::Status(status.code(), absl::StrCat("instruction ", at, " in '", impl_->trace.modules[instruction.module], "', ",
                                                  impl_->trace.Line(instruction, true), ": ", status.message()));
}

absl::StatusOr<at::Tensor> Executor::Output(const std::string& name) {
  const auto it = impl_->trace.outputs.find(name);
  if (it == impl_->trace.outputs.end()) return absl::NotFoundError(absl::StrCat("the trace has no output ", name));
  at::Tensor tensor;
  RETURN_IF_ERROR(Guarded([&] { tensor = impl_->TensorOf(it->second); }));
  return tensor;
}

int64_t Executor::OperatorsPerRun() const { return impl_->calls; }

}  // namespace legoai::graph
