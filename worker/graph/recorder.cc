#include "worker/graph/recorder.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/process/mutex.h"
#include "core/trace/interner.h"
#include "worker/comm/runtime.h"
#include "worker/comm/step_timeline.h"
#include "worker/graph/ivalue_constant.h"
#include "worker/graph/module_attribution.h"
#include "worker/graph/storage_table.h"

namespace legoai::graph {
namespace {

constexpr auto kKey = c10::DispatchKey::Fake;
// Tensors made outside the step and not bound: small ones (numbers) are kept without a word, larger ones with a warning, and
// beyond the last size they are not kept but must be bound.
constexpr size_t kSilentConstantBytes = 64, kMaxConstantBytes = 1 << 20;

// What the recorder wants to know of an operator, looked up once.
struct OperatorFacts {
  bool is_leaf = true;
  bool resizes_storage = false;   // by order of the program: lego::resize_storage_
  std::vector<uint16_t> written;  // places of arguments written in place
  std::optional<uint32_t> trace_index;
};

// A composite that arrives whole (autograd excluded, or called by backward) decomposes and its parts come back here. The question
// is put to the backend's kernel table: silu_backward is composite and has a CPU kernel too.
bool IsLeaf(const c10::OperatorHandle& op, c10::DispatchKey backend) {
  return !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) || op.hasKernelForDispatchKey(backend);
}

c10::DispatchKey BackendOf(c10::DispatchKeySet keys) {
  return keys.has_backend(c10::BackendComponent::CUDABit) ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
}

OperatorFacts FactsOf(const c10::OperatorHandle& op, c10::DispatchKeySet keys) {
  OperatorFacts facts;
  facts.is_leaf = IsLeaf(op, BackendOf(keys));
  facts.resizes_storage = op.schema().name() == "lego::resize_storage_";
  const auto& arguments = op.schema().arguments();
  TORCH_CHECK(arguments.size() <= 64, op.schema().name(), " has more than 64 arguments");
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite()) facts.written.push_back(i);
  }
  return facts;
}

std::string FullName(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : absl::StrCat(name.name, ".", name.overload_name);
}

bool IsTensorListOfOptionals(const c10::IValue& value) {
  return value.isList() && value.toList().elementType()->kind() == c10::TypeKind::OptionalType;
}

Category DefaultCategory(Phase phase) {
  switch (phase) {
    case Phase::kForward:
    case Phase::kRecompute: return Category::kActivation;
    case Phase::kBackward: return Category::kActivationGradient;
    case Phase::kInit:
    case Phase::kOptimizer: return Category::kOther;
  }
  return Category::kOther;
}

// A device's memory is copied, not looked at.
std::string HostBytes(const c10::Storage& storage) {
  const auto options = at::TensorOptions().dtype(at::kByte).device(storage.device());
  const at::Tensor bytes = at::empty({0}, options).set_(storage).cpu();
  return std::string(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
}

std::atomic<Recorder::Impl*> g_recorder{nullptr};  // set by Recorder alone

}  // namespace

struct Recorder::Impl {
  explicit Impl(OperatorRunner* runner) : runner(runner), interner(&trace), modules(&interner) {}

  OperatorRunner* runner;
  Mutex mutex;
  Trace trace ABSL_GUARDED_BY(mutex);
  Interner interner ABSL_GUARDED_BY(mutex);
  ModuleAttribution modules ABSL_GUARDED_BY(mutex);
  StorageTable storages ABSL_GUARDED_BY(mutex);
  std::vector<uint32_t> born_at ABSL_GUARDED_BY(mutex);  // by storage: the instruction
  absl::flat_hash_map<const c10::OperatorName*, OperatorFacts> facts ABSL_GUARDED_BY(mutex);
  std::vector<c10::StorageImpl*> written ABSL_GUARDED_BY(mutex);  // by the operator being recorded
  std::atomic<bool> recording{true};
  std::unique_ptr<c10::impl::IncludeDispatchKeyGuard> guard;

  OperatorFacts& Facts(const c10::OperatorHandle& op, c10::DispatchKeySet keys) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto [it, fresh] = facts.try_emplace(&op.operator_name());
    if (fresh) it->second = FactsOf(op, keys);
    return it->second;
  }
  bool Decomposes(const c10::OperatorHandle& op, c10::DispatchKeySet keys) {
    const MutexLock lock(mutex);
    return !Facts(op, keys).is_leaf;
  }

  uint32_t AddStorage(c10::StorageImpl* storage, StorageKind kind, Category category, std::string name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    trace.storages.push_back({static_cast<int64_t>(storage->nbytes()), kind, category, std::move(name), ""});
    born_at.push_back(trace.instructions.size());
    return storages.Add(storage, kind != StorageKind::kExternal);
  }

  // A tensor made outside the step that nobody bound: its contents are kept, or nobody but the user can know them.
  uint32_t AddUnbound(c10::StorageImpl* storage, const at::Tensor& tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const bool keep = storage->data() != nullptr && storage->nbytes() <= kMaxConstantBytes;
    const uint32_t id = AddStorage(storage, StorageKind::kConstant, Category::kOther, absl::StrCat("?", storages.size()));
    Storage& record = trace.storages[id];
    if (keep) record.contents = HostBytes(tensor.storage());
    if (!keep) record.kind = StorageKind::kExternal;
    if (!keep || storage->nbytes() > kSilentConstantBytes) {
      trace.warnings.push_back(absl::StrCat("unbound tensor ", record.name, " of ", storage->nbytes(), " bytes, ", tensor.dim(),
                                            "-dimensional, in '", CurrentModule(), "': name it as an input"));
    }
    return id;
  }

  uint32_t StorageOf(const at::Tensor& tensor, bool is_result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    if (const auto id = storages.Find(storage)) return *id;
    if (!is_result) return AddUnbound(storage, tensor);
    const Annotation& now = CurrentAnnotation();
    return AddStorage(storage, StorageKind::kInner, now.category.value_or(DefaultCategory(now.phase)), "");
  }

  uint32_t ValueOf(const at::Tensor& tensor, bool is_result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    TORCH_CHECK(tensor.has_storage(), "a tensor without storage (sparse, opaque) is not supported in a Trace");
    TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(), "a conjugate or negative view is not supported in a Trace");
    const auto sizes = tensor.sizes(), strides = tensor.strides();
    const uint32_t storage = StorageOf(tensor, is_result);
    return interner.Value(storage, GeometryView{ToDType(tensor.scalar_type()),
                                                tensor.storage_offset(),
                                                {sizes.data(), sizes.size()},
                                                {strides.data(), strides.size()}});
  }

  Argument Convert(const c10::IValue& value, bool is_result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (!tensor.defined()) return {Argument::Kind::kUndefined, 0};
      if (!is_result && tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
          !storages.Find(tensor.storage().unsafeGetStorageImpl())) {
        return {Argument::Kind::kWrappedNumber, interner.Constant(WrappedNumber(tensor))};
      }
      return {Argument::Kind::kValue, ValueOf(tensor, is_result)};
    }
    if (value.isTensorList()) return ConvertList(value, Argument::Kind::kList, is_result);
    if (IsTensorListOfOptionals(value)) return ConvertList(value, Argument::Kind::kOptionalList, is_result);
    return {Argument::Kind::kConstant, interner.Constant(ToConstant(value))};
  }
  Argument ConvertList(const c10::IValue& value, Argument::Kind kind, bool is_result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::vector<int64_t> list;
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isNone()) {
        list.push_back(-2);
      } else {
        const at::Tensor& tensor = element.toTensor();
        list.push_back(tensor.defined() ? static_cast<int64_t>(ValueOf(tensor, is_result)) : -1);
      }
    }
    trace.lists.push_back(std::move(list));
    return {kind, static_cast<uint32_t>(trace.lists.size() - 1)};
  }

  std::string CurrentModule() const {
    const std::string* module = CurrentAnnotation().module;
    return module == nullptr ? std::string() : *module;
  }

  Instruction Start(Instruction::Kind kind) const {
    const Annotation& now = CurrentAnnotation();
    Instruction instruction;
    instruction.kind = kind;
    instruction.phase = now.phase;
    instruction.action = now.action;
    instruction.microbatch = now.microbatch;
    return instruction;
  }

  void TakeFreed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (uint32_t id : storages.TakeFreed()) {
      Instruction free = Start(Instruction::Kind::kFree);
      free.immediate = id;
      trace.instructions.push_back(free);
    }
  }

  void CollectWritten(const OperatorFacts& facts, const torch::jit::Stack& stack, size_t base)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    written.clear();
    auto add = [&](const at::Tensor& tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
      if (tensor.defined() && tensor.has_storage()) written.push_back(tensor.storage().unsafeGetStorageImpl());
    };
    for (uint16_t place : facts.written) {
      const c10::IValue& value = stack[base + place];
      if (value.isTensor()) add(value.toTensor());
      if (!value.isTensorList()) continue;
      for (const c10::IValue& element : value.toListRef()) add(element.toTensor());
    }
  }

  // Did a kernel give a written storage other memory? Weak references keep the addresses valid.
  void RecordResizes(const OperatorFacts& facts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    for (c10::StorageImpl* storage : written) {
      const auto id = storages.Find(storage);
      if (!id || storages.bytes(*id) == static_cast<int64_t>(storage->nbytes())) continue;
      storages.bytes(*id) = storage->nbytes();
      if (facts.resizes_storage) continue;
      Instruction resize = Start(Instruction::Kind::kResize);
      resize.operator_index = *id;
      resize.immediate = storage->nbytes();
      trace.instructions.push_back(resize);
    }
  }

  void Run(const c10::OperatorHandle& op, c10::DispatchKeySet after, torch::jit::Stack* stack, size_t base) {
    if (runner != nullptr) return runner->Run(op, after, stack, base);
    op.redispatchBoxed(after, stack);
  }

  uint32_t OperatorIndex(const c10::OperatorHandle& op, OperatorFacts& facts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!facts.trace_index) {
      uint64_t writes = 0;
      for (uint16_t place : facts.written) writes |= uint64_t{1} << place;
      facts.trace_index = trace.operators.size();
      trace.operators.push_back({FullName(op.operator_name()), writes});
    }
    return *facts.trace_index;
  }

  void OnOperator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::DispatchKeySet after, torch::jit::Stack* stack) {
    c10::impl::ExcludeDispatchKeyGuard exclude(kKey);  // what the recorder and the kernel call is not the program's
    const MutexLock lock(mutex);
    const size_t argument_count = op.schema().arguments().size(), base = stack->size() - argument_count;
    if (!recording) return Run(op, after, stack, base);
    TakeFreed();
    OperatorFacts& operator_facts = Facts(op, keys);
    Instruction instruction = Start(Instruction::Kind::kOperator);
    instruction.stream = comm::CurrentStream();
    instruction.module = modules.Current(CurrentAnnotation());
    instruction.operator_index = OperatorIndex(op, operator_facts);
    instruction.first_argument = trace.arguments.size();
    instruction.argument_count = argument_count;
    for (size_t i = 0; i < argument_count; ++i) trace.arguments.push_back(Convert((*stack)[base + i], false));
    CollectWritten(operator_facts, *stack, base);
    {
      // What it frees is noted with the next operator, so this is its place in the Trace.
      const auto timed = comm::TimelineScope::Operator(static_cast<int64_t>(trace.instructions.size()));
      Run(op, after, stack, base);
    }
    instruction.result_count = op.schema().returns().size();
    instruction.first_result = trace.results.size();
    bool host_value = false;
    for (size_t i = stack->size() - instruction.result_count; i < stack->size(); ++i) {
      const Argument result = Convert((*stack)[i], true);
      host_value |= result.kind == Argument::Kind::kConstant;
      trace.results.push_back(result);
    }
    trace.instructions.push_back(instruction);
    if (host_value) {
      trace.warnings.push_back(absl::StrCat("host value read from ", op.schema().name(), " in '",
                                            trace.modules[instruction.module], "': what depends on it is frozen into the trace"));
    }
    RecordResizes(operator_facts);
  }

  void Bind(const std::string& name, const at::Tensor& tensor, Category category) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
    const auto known = storages.Find(storage);
    const uint32_t id = known ? *known : AddStorage(storage, StorageKind::kExternal, category, name);
    Storage& record = trace.storages[id];
    if (record.kind != StorageKind::kExternal || record.name[0] == '?') {
      record = {record.bytes, StorageKind::kExternal, category, name, ""};
    }
    trace.inputs[name] = ValueOf(tensor, true);
  }

  std::string OriginOf(uint32_t id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (born_at[id] >= trace.instructions.size()) return "";
    const Instruction& first_use = trace.instructions[born_at[id]];
    if (first_use.kind != Instruction::Kind::kOperator) return "";
    return absl::StrCat(", made by ", trace.OperatorName(first_use), " in '", trace.modules[first_use.module], "',");
  }

  void WarnOfLifetimes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::vector<bool> is_output(storages.size());
    for (const auto& [_, value] : trace.outputs) is_output[trace.values[value].storage] = true;
    for (uint32_t id = 0; id < storages.size(); ++id) {
      const Storage& storage = trace.storages[id];
      if (storage.kind == StorageKind::kInner && !is_output[id] && storages.IsAlive(id)) {
        trace.warnings.push_back(
            absl::StrCat("storage ", id, " of ", storages.bytes(id), " bytes", OriginOf(id), " outlives the step"));
      }
      if (storage.kind == StorageKind::kExternal && !storages.IsAlive(id)) {
        trace.warnings.push_back(absl::StrCat("input ", storage.name, " died in the step"));
      }
    }
  }
};

namespace {

thread_local OperatorHook* t_hook = nullptr;

// Without a recorder, for a hook alone.
void RunUnrecorded(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::DispatchKeySet after, torch::jit::Stack* stack) {
  if (!IsLeaf(op, BackendOf(keys))) return op.redispatchBoxed(after, stack);
  c10::impl::ExcludeDispatchKeyGuard exclude(kKey);  // what the kernel calls is not the program's
  op.redispatchBoxed(after, stack);
}

void Fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto after = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  const auto run = [&] {
    Recorder::Impl* recorder = g_recorder.load(std::memory_order_relaxed);
    if (recorder == nullptr) return RunUnrecorded(op, keys, after, stack);
    if (recorder->Decomposes(op, keys)) return op.redispatchBoxed(after, stack);
    recorder->OnOperator(op, keys, after, stack);
  };
  if (t_hook == nullptr) return run();
  t_hook->OnOperator(op, stack, run);
}

}  // namespace

OperatorHookScope::OperatorHookScope(OperatorHook* hook) : previous_(std::exchange(t_hook, hook)), guard_(kKey) {}
OperatorHookScope::~OperatorHookScope() { t_hook = previous_; }

void RunAsOperator(const c10::OperatorHandle& op, torch::jit::Stack* stack, absl::FunctionRef<void()> run) {
  if (t_hook == nullptr) return run();
  t_hook->OnOperator(op, stack, [&] {
    const OperatorHookScope none(nullptr);
    run();
  });
}

Recorder::Recorder(OperatorRunner* runner) : impl_(std::make_unique<Impl>(runner)) {
  Impl* none = nullptr;
  TORCH_CHECK(g_recorder.compare_exchange_strong(none, impl_.get()), "one recorder at a time: another one is recording");
  impl_->guard = std::make_unique<c10::impl::IncludeDispatchKeyGuard>(kKey);
}

Recorder::~Recorder() {
  impl_->guard.reset();
  Impl* self = impl_.get();
  g_recorder.compare_exchange_strong(self, nullptr);
}

void Recorder::Input(const std::string& name, const at::Tensor& tensor, Category category) {
  const MutexLock lock(impl_->mutex);
  impl_->Bind(name, tensor, category);
}

void Recorder::Output(const std::string& name, const at::Tensor& tensor) {
  const MutexLock lock(impl_->mutex);
  impl_->TakeFreed();
  TORCH_CHECK(impl_->storages.Find(tensor.storage().unsafeGetStorageImpl()), "output ", name, " was not made in the step");
  impl_->trace.outputs[name] = impl_->ValueOf(tensor, true);
}

void Recorder::SetRecording(bool on) { impl_->recording = on; }

Trace Recorder::Finish() {
  impl_->guard.reset();
  g_recorder = nullptr;
  const MutexLock lock(impl_->mutex);
  impl_->TakeFreed();
  impl_->WarnOfLifetimes();
  return std::move(impl_->trace);
}

void TagStorage(const at::Tensor& tensor, Category category) {
  Recorder::Impl* recorder = g_recorder.load(std::memory_order_relaxed);
  if (recorder == nullptr || !tensor.defined() || !tensor.has_storage()) return;
  const MutexLock lock(recorder->mutex);
  if (const auto id = recorder->storages.Find(tensor.storage().unsafeGetStorageImpl())) {
    recorder->trace.storages[*id].category = category;
  }
}

}  // namespace legoai::graph

TORCH_LIBRARY_IMPL(_, Fake, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&legoai::graph::Fallback>()); }
