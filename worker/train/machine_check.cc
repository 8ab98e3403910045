#include "worker/train/machine_check.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/mesh/mesh.h"
#include "core/process/framing.h"
#include "proto/status.h"
#include "worker/comm/gloo_communicator.h"
#include "worker/comm/status_error.h"
#include "worker/comm/streams.h"
#include "worker/launch/check_pairs.h"
#include "worker/train/machine.h"

namespace legoai::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kDiskBytes = int64_t{64} << 20;
constexpr int64_t kProductSize = 512;                // rows and columns: the host's own loops need a tenth of a second
constexpr int kProducts = 20;
constexpr int64_t kCopiedOnGpu = int64_t{256} << 20, kCopiedOnCpu = int64_t{32} << 20;
constexpr int64_t kGatheredOnGpu = int64_t{32} << 20, kGatheredOnCpu = int64_t{4} << 20;  // of each rank
constexpr int kGathers = 5;

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Bytes of the host that differ from place to place, and from seed to seed.
at::Tensor HostPattern(int64_t bytes, uint32_t seed) {
  at::Tensor tensor = at::empty({bytes / 4}, at::kInt);
  auto* words = tensor.data_ptr<int32_t>();
  for (int64_t i = 0; i < bytes / 4; ++i) words[i] = static_cast<int32_t>((static_cast<uint32_t>(i) + seed) * 2654435761U);
  return tensor;
}

// Small integers, from -4 to 4.
std::vector<int32_t> Factor(uint32_t seed) {
  std::vector<int32_t> factor(kProductSize * kProductSize);
  uint32_t state = seed;
  for (int32_t& one : factor) {
    state = state * 1664525U + 1013904223U;
    one = static_cast<int32_t>((state >> 16) % 9) - 4;
  }
  return factor;
}

at::Tensor ToFloats(const std::vector<int32_t>& numbers) {
  at::Tensor tensor = at::empty({kProductSize, kProductSize}, at::kFloat);
  std::copy(numbers.begin(), numbers.end(), tensor.data_ptr<float>());
  return tensor;
}

std::vector<int32_t> ProductOf(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  std::vector<int32_t> product(kProductSize * kProductSize, 0);
  for (int64_t row = 0; row < kProductSize; ++row) {
    int32_t* const out = &product[row * kProductSize];
    for (int64_t inner = 0; inner < kProductSize; ++inner) {
      const int32_t factor = a[row * kProductSize + inner];
      const int32_t* const in = &b[inner * kProductSize];
      for (int64_t column = 0; column < kProductSize; ++column) out[column] += factor * in[column];
    }
  }
  return product;
}

absl::Status CheckCopies(c10::Device device, v1::CheckResult* result) {
  const int64_t bytes = device.is_cpu() ? kCopiedOnCpu : kCopiedOnGpu;
  const at::Tensor host = HostPattern(bytes, 1);
  const at::Tensor there = at::empty({bytes / 4}, host.options().device(device)), copy = at::empty_like(there);
  there.copy_(host);  // the first use is no measure
  const Clock::time_point to = Clock::now();
  there.copy_(host);
  result->set_to_device_bytes_per_second(static_cast<double>(bytes) / SecondsSince(to));
  copy.copy_(there);
  const at::Tensor back = at::empty_like(host);
  back.copy_(copy);
  const Clock::time_point from = Clock::now();
  back.copy_(copy);
  result->set_from_device_bytes_per_second(static_cast<double>(bytes) / SecondsSince(from));
  if (std::memcmp(back.data_ptr(), host.data_ptr(), static_cast<size_t>(bytes)) == 0) return absl::OkStatus();
  return absl::DataLossError("what was copied to the device's memory and back is not what it was");
}

// Integers below 2^24 in float32, and in any type of less precision in which a GPU may multiply: exact.
absl::Status CheckProduct(c10::Device device, v1::CheckResult* result) {
  const std::vector<int32_t> a = Factor(1), b = Factor(2), expected = ProductOf(a, b);
  const at::Tensor x = ToFloats(a).to(device), y = ToFloats(b).to(device), exact = ToFloats(expected);
  if (!at::equal(at::matmul(x, y).cpu(), exact)) return absl::DataLossError("a matrix product is not what the host computes");
  const Clock::time_point begin = Clock::now();
  at::Tensor last;
  for (int i = 0; i < kProducts; ++i) last = at::matmul(x, y);
  const at::Tensor product = last.cpu();
  const double flops = 2.0 * kProducts * kProductSize * kProductSize * kProductSize;
  result->set_flops_per_second(flops / SecondsSince(begin));
  if (at::equal(product, exact)) return absl::OkStatus();
  return absl::DataLossError("a matrix product that was right at first is not what the host computes any more");
}

v1::Start StartOf(const v1::CheckTask& task) {
  v1::Start start;
  start.set_device(task.device());
  start.set_gpu(task.gpu());
  start.set_threads(task.threads());
  start.set_rank(task.rank());
  start.set_local_rank(task.rank());
  return start;
}

v1::CheckResult Timed(v1::CheckKind kind, const std::function<absl::Status(v1::CheckResult*)>& check) {
  v1::CheckResult result;
  result.set_kind(kind);
  const Clock::time_point begin = Clock::now();
  const absl::Status status = comm::CatchStatus([&] { return check(&result); });
  result.set_seconds(SecondsSince(begin));
  result.set_passed(status.ok());
  result.set_text(std::string(status.message()));
  return result;
}

// A rank of the check of pairs. The other end of a pair does the same at the same time.
class PairChecker {
 public:
  static absl::StatusOr<std::unique_ptr<PairChecker>> Open(const v1::CheckTask& task) {
    std::unique_ptr<PairChecker> checker(new PairChecker(task));
    ASSIGN_OR_RETURN(checker->machine_, Machine::Open(StartOf(task)));
    const comm::CudaPlugin* plugin = nullptr;
    if (task.device() == "cuda") {
      ASSIGN_OR_RETURN(plugin, comm::LoadCudaPlugin());
    }
    comm::RendezvousOptions options;
    options.port = static_cast<int>(task.rendezvous_port());
    options.listen_fd = static_cast<int>(task.rendezvous_fd());
    options.rank = task.rank();
    options.world_size = task.slots_size();
    options.timeout = options.connect_timeout = std::chrono::milliseconds(static_cast<int64_t>(1000 * task.timeout_seconds()));
    ASSIGN_OR_RETURN(checker->factory_, plugin != nullptr ? plugin->make_nccl_factory(options) : comm::MakeGlooFactory(options));
    checker->streams_ = plugin != nullptr ? plugin->make_streams() : comm::MakeThreadStreams();
    return checker;
  }

  v1::CheckResult Check(const launch::RankPair& pair, int64_t round) {
    v1::CheckResult result = Timed(v1::ALL_GATHER_CHECK, [&](v1::CheckResult* of) { return Gather(pair, round, of); });
    result.add_slots(task_.slots(static_cast<int>(pair.first)));
    result.add_slots(task_.slots(static_cast<int>(pair.second)));
    return result;
  }

 private:
  explicit PairChecker(const v1::CheckTask& task) : task_(task) {}

  absl::Status Gather(const launch::RankPair& pair, int64_t round, v1::CheckResult* result) {
    const int64_t own = task_.rank() == pair.first ? 0 : 1;
    const mesh::Group group = {mesh::Dim::kWorld, {pair.first, pair.second - pair.first, 2}};
    // Of the round's own channel: its first rank meets others in other rounds.
    ASSIGN_OR_RETURN(const auto communicator, factory_(group, own, round));
    streams_->SetHealth([&] { return communicator->Health(); });
    const absl::Status status = GatherOver(*communicator, own, result);
    streams_->SetHealth(nullptr);
    if (!status.ok()) communicator->Abort();
    return status;
  }

  absl::Status GatherOver(comm::Communicator& communicator, int64_t own, v1::CheckResult* result) {
    const c10::Device device = machine_->device();
    const int64_t bytes = device.is_cpu() ? kGatheredOnCpu : kGatheredOnGpu;
    const at::Tensor in = HostPattern(bytes, static_cast<uint32_t>(own)).to(device);
    const at::Tensor out = at::empty({2 * bytes / 4}, in.options());
    const auto gather = [&]() -> absl::Status {
      RETURN_IF_ERROR(communicator.AllGather(out.data_ptr(), in.data_ptr(), bytes));
      return streams_->Drain();
    };
    RETURN_IF_ERROR(gather());
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < kGathers; ++i) {
      RETURN_IF_ERROR(gather());
    }
    result->set_received_bytes_per_second(static_cast<double>(bytes * kGathers) / SecondsSince(begin));
    const at::Tensor got = out.cpu();
    for (int64_t rank = 0; rank < 2; ++rank) {
      const at::Tensor sent = HostPattern(bytes, static_cast<uint32_t>(rank));
      if (at::equal(got.slice(0, rank * bytes / 4, (rank + 1) * bytes / 4), sent)) continue;
      return absl::DataLossError("what an all-gather has brought is not what was sent");
    }
    return absl::OkStatus();
  }

  const v1::CheckTask task_;
  std::unique_ptr<Machine> machine_;
  comm::CommunicatorFactory factory_;
  std::unique_ptr<comm::Streams> streams_;
};

using Send = std::function<absl::Status(const v1::CheckResult&)>;

// Both ranks tell of each pair. `await_end`: the store that rank 0 serves stays until the agent has heard of all.
absl::Status CheckPairs(const v1::CheckTask& task, const Send& send, const std::function<void()>& await_end) {
  absl::StatusOr<std::unique_ptr<PairChecker>> checker = absl::UnknownError("");
  const absl::Status opened = comm::CatchStatus([&] {
    checker = PairChecker::Open(task);
    return checker.status();
  });
  int64_t round = 0;
  for (const auto& pairs : launch::CheckRounds(task.slots_size(), task.one_round())) {
    for (const launch::RankPair& pair : pairs) {
      if (pair.first != task.rank() && pair.second != task.rank()) continue;
      v1::CheckResult result;
      if (opened.ok()) {
        result = (*checker)->Check(pair, round);
      } else {
        result = Timed(v1::ALL_GATHER_CHECK, [&](v1::CheckResult*) { return opened; });
        for (const int64_t rank : {pair.first, pair.second}) result.add_slots(task.slots(static_cast<int>(rank)));
      }
      RETURN_IF_ERROR(send(result));
    }
    ++round;
  }
  await_end();
  return absl::OkStatus();
}

}  // namespace

v1::CheckResult CheckDevice(const v1::CheckTask& task) {
  return Timed(v1::DEVICE_CHECK, [&](v1::CheckResult* result) -> absl::Status {
    ASSIGN_OR_RETURN(const auto machine, Machine::Open(StartOf(task)));
    RETURN_IF_ERROR(CheckCopies(machine->device(), result));
    return CheckProduct(machine->device(), result);
  });
}

int RunCheck(int fd) {
  launch::MessageReader reader(fd);
  v1::CheckTask task;
  const absl::StatusOr<bool> told = reader.Read(&task);
  if (!told.ok() || !*told) return 1;
  const Send send = [fd](const v1::CheckResult& result) { return launch::WriteMessage(fd, result); };
  const auto await_end = [&] { (void)reader.Read(&task); };
  absl::Status sent;
  if (task.kind() == v1::ALL_GATHER_CHECK) {
    sent = CheckPairs(v1::CheckTask(task), send, await_end);
  } else {
    sent = send(task.kind() == v1::DISK_CHECK ? CheckDisk(task.folder(), task.file(), kDiskBytes) : CheckDevice(task));
    await_end();
  }
  close(fd);
  return sent.ok() ? 0 : 1;
}

}  // namespace legoai::train
