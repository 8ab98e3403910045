// The disk's part of machine_check.h.
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/files.h"
#include "proto/status.h"
#include "worker/train/machine_check.h"

namespace legoai::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPiece = size_t{4} << 20;

double SecondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// What neither a disk nor a file system makes smaller, different at every place of the file.
void FillPiece(uint64_t piece, std::vector<uint64_t>* words) {
  uint64_t state = 0x9E3779B97F4A7C15 * (piece + 1);
  for (uint64_t& word : *words) {  // xorshift64, Marsaglia 2003
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    word = state;
  }
}

absl::Status WriteAll(const std::string& path, int64_t bytes) {
  ASSIGN_OR_RETURN(auto file, checkpoint::OutputFile::Create(path));
  std::vector<uint64_t> words(kPiece / sizeof(uint64_t));
  for (int64_t written = 0; written < bytes; written += static_cast<int64_t>(kPiece)) {
    FillPiece(static_cast<uint64_t>(written), &words);
    const auto size = static_cast<size_t>(std::min<int64_t>(kPiece, bytes - written));
    RETURN_IF_ERROR(file.WriteAt(written, words.data(), static_cast<int64_t>(size)));
  }
  return file.Close();
}

// Past what the host keeps in memory, where the file system lets go of it.
absl::Status ReadAll(const std::string& path, int64_t bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return checkpoint::ReadError(path, "cannot read", errno);
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  std::vector<uint64_t> expected(kPiece / sizeof(uint64_t)), words(kPiece / sizeof(uint64_t));
  absl::Status status;
  for (int64_t at = 0; at < bytes && status.ok();) {
    const auto size = static_cast<size_t>(std::min<int64_t>(kPiece, bytes - at));
    const ssize_t got = pread(fd, words.data(), size, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) status = checkpoint::ReadError(path, "cannot read", errno);
    FillPiece(static_cast<uint64_t>(at), &expected);
    if (got >= 0 && (static_cast<size_t>(got) != size || std::memcmp(words.data(), expected.data(), size) != 0))
      status = absl::DataLossError(absl::StrCat(path, " does not hold what was written, from byte ", at, " on"));
    at += static_cast<int64_t>(size);
  }
  close(fd);
  return status;
}

absl::Status Check(const std::string& path, int64_t bytes, v1::CheckResult* result) {
  const Clock::time_point write = Clock::now();
  RETURN_IF_ERROR(WriteAll(path, bytes));
  result->set_write_bytes_per_second(static_cast<double>(bytes) / SecondsSince(write));
  const Clock::time_point read = Clock::now();
  RETURN_IF_ERROR(ReadAll(path, bytes));
  result->set_read_bytes_per_second(static_cast<double>(bytes) / SecondsSince(read));
  return absl::OkStatus();
}

}  // namespace

v1::CheckResult CheckDisk(const std::string& folder, const std::string& file, int64_t bytes) {
  v1::CheckResult result;
  result.set_kind(v1::DISK_CHECK);
  const std::string path = absl::StrCat(folder, "/", file);
  const Clock::time_point begin = Clock::now();
  struct statvfs disk = {};
  if (statvfs(folder.c_str(), &disk) == 0)
    result.set_free_bytes(static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize));
  const absl::Status status = Check(path, bytes, &result);
  unlink(path.c_str());
  result.set_seconds(SecondsSince(begin));
  result.set_passed(status.ok());
  result.set_text(std::string(status.message()));
  return result;
}

}  // namespace legoai::train
