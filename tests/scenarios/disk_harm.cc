#include "tests/scenarios/disk_harm.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "core/checkpoint/testing/small_file_system.h"

namespace legoai::scenarios {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDiskBytes = int64_t{768} << 20;
constexpr char kFiller[] = "/filler";
constexpr size_t kLatest = 3;  // jobs, by when they saved last: what has ended long ago is gone on from by nobody

struct Saved {
  int64_t step = 0;
  fs::file_time_type time;
  std::string path;
  bool operator<(const Saved& other) const { return std::tie(step, path) < std::tie(other.step, other.path); }
};

// Those of a job that have a manifest in its place, whatever their epoch, by step.
std::vector<Saved> SavedBy(const fs::path& job) {
  std::vector<Saved> saved;
  std::error_code error;
  for (const auto& epoch : fs::directory_iterator(job, error)) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(epoch.path() / "checkpoints", none)) {
      const std::string name = entry.path().filename().string();
      Saved one;
      one.path = entry.path().string();
      if (name.rfind("step-", 0) != 0 || !absl::SimpleAtoi(name.substr(5), &one.step)) continue;
      one.time = fs::last_write_time(entry.path() / "manifest.pb", none);
      if (!none) saved.push_back(one);
    }
  }
  std::sort(saved.begin(), saved.end());
  return saved;
}

}  // namespace

std::optional<std::string> DiskHarm::Mount() {
  std::error_code error;
  fs::create_directories(runs_, error);
  const absl::Status status = checkpoint::MountSmallFileSystem(runs_, kDiskBytes);
  if (!status.ok()) return std::string(status.message());
  mounted_ = true;
  return std::nullopt;
}

void DiskHarm::Unmount() {
  if (mounted_) umount2(runs_.c_str(), MNT_DETACH);
  mounted_ = false;
}

std::vector<std::string> DiskHarm::Candidates() const {
  std::multimap<fs::file_time_type, std::string> newest;
  std::error_code error;
  for (const auto& job : fs::directory_iterator(runs_, error)) {
    std::vector<Saved> saved = SavedBy(job.path());
    // One that was harmed and not yet found is newer than what is gone on from once it is.
    if (saved.size() < 2 || spoiled_.count(saved.back().path) > 0) continue;
    const Saved& older = saved[saved.size() - 2];
    if (older.step < saved.back().step && spoiled_.count(older.path) == 0) newest.emplace(saved.back().time, saved.back().path);
  }
  std::vector<std::string> latest;
  for (auto one = newest.rbegin(); one != newest.rend() && latest.size() < kLatest; ++one) latest.push_back(one->second);
  return latest;
}

bool DiskHarm::SpoilCheckpoint() {
  const std::vector<std::string> candidates = Candidates();
  const uint32_t chosen = (*random_)(), which = (*random_)(), where = (*random_)();
  if (candidates.empty()) return false;
  const std::string step = candidates[chosen % candidates.size()];
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(step, error)) {
    // What a rank lists of its chunks is read by nobody once the manifest lists all: to harm that harms nothing.
    if (!absl::EndsWith(entry.path().string(), ".chunks.pb")) files.push_back(entry.path().string());
  }
  if (files.empty()) return false;
  std::sort(files.begin(), files.end());
  const std::string& path = files[which % files.size()];
  const uint64_t size = fs::file_size(path, error);
  if (error || size == 0) return false;  // it is being removed
  spoiled_[step] = absl::ToUnixMicros(absl::Now());
  if (where % 4 == 0) {
    fs::resize_file(path, where / 4 % size, error);
    return true;
  }
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  const off_t at = static_cast<off_t>(where / 4 % size);
  unsigned char byte = 0;
  if (pread(fd, &byte, 1, at) == 1) {
    byte ^= static_cast<unsigned char>(1u << (where % 8));
    if (pwrite(fd, &byte, 1, at) != 1) byte = 0;
  }
  close(fd);
  return true;
}

bool DiskHarm::Fill() {
  if (!mounted_ || full_) return false;
  const int fd = open((runs_ + kFiller).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  // In steps that shrink: what is written meanwhile by others is full as well.
  off_t end = 0;
  for (off_t block = off_t{64} << 20; block >= 4096;) {
    if (posix_fallocate(fd, end, block) == 0) {
      end += block;
    } else {
      block /= 4;
    }
  }
  close(fd);
  return full_ = true;
}

void DiskHarm::MakeRoom() {
  std::error_code error;
  fs::remove(runs_ + kFiller, error);
  full_ = false;
}

}  // namespace legoai::scenarios
