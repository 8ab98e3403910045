#include "worker/agent/gpu_watch.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace legoai::agent {
namespace {

constexpr absl::Duration kReadInterval = absl::Seconds(2);
constexpr absl::Duration kEventWait = absl::Milliseconds(200);

std::vector<int> IndicesOf(const v1::Worker& worker) {
  std::vector<int> indices;
  for (const v1::SlotDevice& device : worker.slot_devices()) indices.push_back(static_cast<int>(device.index()));
  return indices;
}

}  // namespace

GpuWatch::GpuWatch(const v1::Worker& worker, Health& health, const JsonLog& log)
    : worker_(worker.name().substr(worker.name().rfind('/') + 1)),
      indices_(IndicesOf(worker)),
      health_(health),
      log_(log),
      lost_(indices_.size(), false),
      ecc_errors_(indices_.size(), 0),
      known_ecc_errors_(indices_.size(), 0) {
  if (!indices_.empty()) thread_ = std::thread([this] { Work(); });
}

GpuWatch::~GpuWatch() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  ended_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void GpuWatch::TakeBack(int64_t slot) {
  const MutexLock lock(mutex_);
  if (slot < static_cast<int64_t>(indices_.size())) known_ecc_errors_[slot] = ecc_errors_[slot];
}

bool GpuWatch::IsOver(absl::Duration wait) {
  MutexLock lock(mutex_);
  const auto end = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(wait);
  while (!ending_ && ended_.WaitUntil(lock, end)) {
  }
  return ending_;
}

void GpuWatch::Work() {
  std::optional<sim::GpuHealthReader> reader;
  bool told = false;
  std::string told_no_events;
  absl::Time read;
  while (!IsOver(absl::ZeroDuration())) {
    if (!reader) {
      auto opened = sim::GpuHealthReader::Open(indices_);
      if (!opened.ok() && !std::exchange(told, true))
        log_.Write("warning", absl::StrCat("the GPUs' health is not known, and is asked for again: ", opened.status().message()));
      if (opened.ok()) reader = *std::move(opened);
      if (reader && std::exchange(told_no_events, reader->why_no_events()) != reader->why_no_events() && !told_no_events.empty())
        log_.Write("warning", absl::StrCat("Xids of the GPUs are not noticed: ", told_no_events));
      if (!reader && IsOver(kReadInterval)) return;
      continue;
    }
    if (absl::Now() - read >= kReadInterval || absl::Now() < read) {
      read = absl::Now();
      if (Read(*reader)) {
        // No wait for an event of any card ends well while one of them is lost: what is opened anew is without it.
        reader.reset();
        continue;
      }
    }
    if (const auto event = reader->AwaitXid(kEventWait)) TellOfXid(*event);
  }
}

bool GpuWatch::Read(const sim::GpuHealthReader& reader) {
  const std::vector<sim::GpuHealth> cards = reader.Read();
  bool newly_lost = false;
  for (size_t slot = 0; slot < cards.size(); ++slot) {
    int64_t known = 0;
    {
      const MutexLock lock(mutex_);
      const int64_t errors = cards[slot].uncorrected_ecc_errors.value_or(ecc_errors_[slot]);
      if (errors < ecc_errors_[slot]) known_ecc_errors_[slot] = 0;  // it was reset
      ecc_errors_[slot] = errors;
      known = known_ecc_errors_[slot];
    }
    std::string lost, memory;
    for (const sim::GpuFault& fault : sim::FaultsOf(cards[slot], known)) {
      (fault.cause == v1::GPU_LOST ? lost : memory) = fault.reason;
    }
    newly_lost = newly_lost || (cards[slot].lost && !lost_[slot]);
    lost_[slot] = cards[slot].lost;
    health_.Set(static_cast<int64_t>(slot), v1::GPU_LOST, lost);
    // A card that is lost does not say what else it has.
    if (lost.empty()) health_.Set(static_cast<int64_t>(slot), v1::GPU_MEMORY, memory);
  }
  return newly_lost;
}

void GpuWatch::TellOfXid(const sim::XidEvent& event) {
  const auto slot = static_cast<int64_t>(event.gpu);
  const std::string xid = absl::StrCat("Xid ", event.xid);
  if (!sim::IsCriticalXid(event.xid))
    return log_.Write("warning", absl::StrCat("slot ", slot, ": its driver told of ", xid, ", which programs cause themselves"));
  health_.Set(slot, v1::GPU_XID,
              absl::StrCat("its driver told of ", xid, " (docs.nvidia.com/deploy/xid-errors): once that is dealt with, ",
                           "`lego workers ", worker_, " --check` takes it back"));
}

}  // namespace legoai::agent
