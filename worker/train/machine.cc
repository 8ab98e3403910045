#include "worker/train/machine.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "worker/comm/cpu_tensors.h"
#include "worker/comm/gloo_communicator.h"
#include "worker/comm/ops.h"
#include "worker/comm/status_error.h"
#include "worker/comm/streams.h"
#include "worker/launch/gang_address.h"

namespace legoai::train {
namespace {

absl::StatusOr<comm::RendezvousOptions> Rendezvous(const v1::Start& start) {
  const v1::CommSection& section = start.recipe().comm();
  comm::RendezvousOptions options;
  options.host = start.rendezvous_host();
  options.port = static_cast<int>(start.rendezvous_port());
  options.listen_fd = static_cast<int>(start.rendezvous_fd());
  options.rank = start.rank();
  options.world_size = start.world_size();
  options.timeout = std::chrono::seconds(section.train_timeout_seconds());
  options.connect_timeout = std::chrono::seconds(section.init_timeout_seconds());
  // Of several hosts: elsewhere nobody but this host shall reach a rank.
  if (options.host != options.bind_address) {
    ASSIGN_OR_RETURN(options.bind_address, launch::ListenAddress(options.host, options.port));
  }
  return options;
}

absl::StatusOr<std::unique_ptr<comm::FlightRecorder>> RecorderOf(const v1::Start& start, const std::vector<mesh::Group>& groups,
                                                                 bool cuda) {
  const v1::CommSection& section = start.recipe().comm();
  ASSIGN_OR_RETURN(auto ring, comm::FlightRing::Create(launch::FlightRingPath(start.run_directory(), start.rank()), start.rank(),
                                                       start.world_size(), groups, section.trace_buf_size(),
                                                       cuda ? "nccl" : "gloo", 1000 * section.train_timeout_seconds()));
  return std::make_unique<comm::FlightRecorder>(std::move(ring));
}

// The rank's own, by its UUID, or by its rank where nobody has given it one.
absl::StatusOr<int> GpuOf(const v1::Start& start, const comm::CudaPlugin& plugin) {
  const std::string shown = absl::StrCat(plugin.devices, plugin.devices == 1 ? " GPU" : " GPUs");
  if (!start.gpu().empty()) {
    const int index = plugin.device_of_uuid(start.gpu().c_str());
    if (index >= 0) return index;
    return FieldError("gpu", start.gpu(),
                      absl::StrCat("this GPU of rank ", start.rank(), " is none of the ", shown,
                                   " that CUDA shows the trainer: name GPUs in CUDA_VISIBLE_DEVICES by UUID, or set "
                                   "CUDA_DEVICE_ORDER=PCI_BUS_ID (MIG parts are not supported), and start again"),
                      absl::StatusCode::kFailedPrecondition);
  }
  const int index = static_cast<int>(start.local_rank());
  if (index < plugin.devices) return index;
  return FieldError("device", "cuda",
                    absl::StrCat("rank ", start.rank(), " needs a GPU of its own, and this host has ", plugin.devices,
                                 "; use no more ranks than that, or device cpu"),
                    absl::StatusCode::kFailedPrecondition);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Machine>> Machine::Open(const v1::Start& start) {
  if (start.device() != "cpu" && start.device() != "cuda") {
    return FieldError("device", start.device(), "must be cpu or cuda");
  }
  if (start.device() == "cpu") {
    comm::InstallCpuMemoryCounter();
    at::set_num_threads(static_cast<int>(std::max<int64_t>(start.threads(), 1)));
    return std::unique_ptr<Machine>(new Machine(c10::Device(c10::kCPU)));
  }
  ASSIGN_OR_RETURN(const auto plugin, comm::LoadCudaPlugin());
  ASSIGN_OR_RETURN(const int index, GpuOf(start, *plugin));
  RETURN_IF_ERROR(plugin->select_device(index));
  std::unique_ptr<Machine> machine(new Machine(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index))));
  machine->plugin_ = plugin;
  at::set_num_threads(static_cast<int>(std::max<int64_t>(start.threads(), 1)));  // initial weights are drawn on the host
  return machine;
}

Machine::~Machine() = default;

absl::Status Machine::MakeRecorder(const v1::Start& start, const parallel::ResolvedRecipe& resolved) {
  ASSIGN_OR_RETURN(recorder_, RecorderOf(start, resolved.mesh().Groups(start.rank()), plugin_ != nullptr));
  return absl::OkStatus();
}

absl::Status Machine::Connect(const v1::Start& start, const parallel::ResolvedRecipe& resolved,
                              const std::function<void(const std::string&)>& say) {
  const std::vector<mesh::Group> groups = resolved.mesh().Groups(start.rank());
  comm::CommunicatorFactory factory = comm::NoCommunicator;
  if (start.world_size() > 1) {
    ASSIGN_OR_RETURN(auto rendezvous, Rendezvous(start));
    rendezvous.symmetric_tensor_parallel = resolved.recipe().parallelism().enable_async_tensor_parallel();
    rendezvous.say = say;
    auto made = plugin_ != nullptr ? plugin_->make_nccl_factory(rendezvous) : comm::MakeGlooFactory(rendezvous);
    if (!made.ok()) return Annotate(made.status(), "the ranks could not meet");
    factory = *std::move(made);
  }
  timeline_ = std::make_unique<comm::StepTimeline>(plugin_ != nullptr ? plugin_->make_clock() : nullptr);
  auto streams = plugin_ != nullptr ? plugin_->make_streams() : comm::MakeThreadStreams();
  ASSIGN_OR_RETURN(runtime_,
                   comm::Runtime::Create(start.rank(), groups, std::move(streams), std::move(factory), recorder_.get()));
  scope_ = std::make_unique<comm::RuntimeScope>(runtime_.get());
  return absl::OkStatus();
}

int64_t Machine::PeakMemoryBytes() const {
  return plugin_ != nullptr ? plugin_->peak_allocated_bytes(device_.index()) : comm::CpuPeakBytes();
}

absl::StatusOr<int64_t> Machine::Max(int64_t value) {
  int64_t result = 0;
  RETURN_IF_ERROR(comm::CatchStatus([&] {
    const at::Tensor tensor = at::full({}, value, at::TensorOptions().dtype(at::kLong).device(device_));
    comm::AllReduce(tensor, runtime_->GroupId(mesh::Dim::kWorld), comm::ReduceOp::kMax);
    // item() alone would wait for a lost peer for ever.
    RETURN_IF_ERROR(runtime_->Drain());
    result = tensor.item<int64_t>();
    return absl::OkStatus();
  }));
  return result;
}

std::string CommunicationOf(const std::string& run_directory, int64_t rank) {
  const absl::StatusOr<v1::FlightDump> dump = comm::ReadFlightRing(launch::FlightRingPath(run_directory, rank), "request");
  std::string waits_in;
  if (!dump.ok()) return waits_in;
  for (const v1::FlightEntry& entry : dump->entries()) {
    if (entry.state() == "started") waits_in = absl::StrCat(entry.profiling_name(), " of group ", entry.process_group());
  }
  return waits_in;
}

}  // namespace legoai::train
