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
// Rows and columns of a product, and how many of its rows the host computes as well, which takes it a tenth of a second and one.
constexpr int64_t kSizeOnCpu = 512, kSizeOnGpu = 4096, kRowsOnGpu = 64;
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

// A square matrix of small integers, from -4 to 4.
struct Factor {
  Factor(int64_t rows, uint32_t seed) : size(rows), numbers(static_cast<size_t>(rows * rows)) {
    for (int32_t& one : numbers) {
      seed = seed * 1664525U + 1013904223U;
      one = static_cast<int32_t>((seed >> 16) % 9) - 4;
    }
  }
  at::Tensor OnHost() const {
    at::Tensor tensor = at::empty({size, size}, at::kFloat);
    std::copy(numbers.begin(), numbers.end(), tensor.data_ptr<float>());
    return tensor;
  }
  const int64_t size;
  std::vector<int32_t> numbers;
};

// Whether a row of `product`, which is on the host, is that of a b.
bool IsRowOf(int64_t row, const at::Tensor& product, const Factor& a, const Factor& b) {
  std::vector<int32_t> expected(static_cast<size_t>(a.size), 0);
  for (int64_t inner = 0; inner < a.size; ++inner) {
    const int32_t factor = a.numbers[row * a.size + inner];
    const int32_t* const in = &b.numbers[inner * a.size];
    for (int64_t column = 0; column < a.size; ++column) expected[column] += factor * in[column];
  }
  const float* const got = product.data_ptr<float>() + row * a.size;
  return std::equal(expected.begin(), expected.end(), got, [](int32_t e, float g) { return g == static_cast<float>(e); });
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

// Integers below 2^24 in float32, and in any type of less precision in which a GPU may multiply: exact. All later products must
// be the first one bit by bit.
absl::Status CheckProduct(c10::Device device, v1::CheckResult* result) {
  const int64_t size = device.is_cpu() ? kSizeOnCpu : kSizeOnGpu, step = device.is_cpu() ? 1 : kSizeOnGpu / kRowsOnGpu;
  const Factor a(size, 1), b(size, 2);
  const at::Tensor x = a.OnHost().to(device), y = b.OnHost().to(device);
  const at::Tensor first = at::matmul(x, y), on_host = first.cpu();
  for (int64_t row = 0; row < size; row += step) {
    if (!IsRowOf(row, on_host, a, b)) return absl::DataLossError("a matrix product is not what the host computes");
  }
  const Clock::time_point begin = Clock::now();
  at::Tensor last;
  for (int i = 0; i < kProducts; ++i) last = at::matmul(x, y);
  const bool same = at::equal(last, first);  // which waits for it
  result->set_flops_per_second(2.0 * kProducts * static_cast<double>(size * size * size) / SecondsSince(begin));
  return same ? absl::OkStatus() : absl::DataLossError("a matrix product is another one when it is computed again");
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
    options.timeout = std::chrono::milliseconds(static_cast<int64_t>(1000 * task.timeout_seconds()));
    // A peer that was kept by one that hangs, once in each round, comes all the same.
    options.connect_timeout = options.timeout * (std::ssize(launch::CheckRounds(task.slots_size(), task.one_round())) + 1);
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
