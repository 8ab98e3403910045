#include "server/access/audit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/json/json.h"
#include "proto/status.h"
#include "server/metrics/log.h"

namespace legoai::access {
namespace {

namespace fs = std::filesystem;

absl::Status CannotWrite(const std::string& path) {
  return FieldError("--audit_log", path,
                    absl::StrCat("cannot be written (", std::strerror(errno), "): name another file, or make room on its disk"),
                    absl::StatusCode::kFailedPrecondition);
}

bool Has(const v1::AuditRecord& record, std::string_view text) {
  const std::string_view fields[] = {record.token(), record.call(), record.resource(), record.remote(), record.outcome()};
  for (const std::string_view field : fields) {
    if (field.find(text) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(const std::string& path, const AuditOptions& options) {
  std::unique_ptr<AuditLog> log(new AuditLog(path, options));
  const MutexLock lock(log->mutex_);
  RETURN_IF_ERROR(log->OpenFile());
  return log;
}

AuditLog::~AuditLog() {
  const MutexLock lock(mutex_);
  if (file_ >= 0) close(file_);
}

std::string AuditLog::Older(int number) const { return number == 0 ? path_ : absl::StrCat(path_, ".", number); }

absl::Status AuditLog::OpenFile() {
  file_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  struct stat facts {};
  if (file_ < 0 || fstat(file_, &facts) != 0) return CannotWrite(path_);
  // One that somebody has made before, or has copied back: where it cannot be changed it is not this user's.
  const bool is_open = S_ISREG(facts.st_mode) && (facts.st_mode & (S_IRWXG | S_IRWXO)) != 0;
  if (is_open && fchmod(file_, S_IRUSR | S_IWUSR) != 0) return CannotWrite(path_);
  bytes_ = facts.st_size;
  // A line that a crash cut short ends here, not in the middle of the next.
  char last = '\n';
  if (bytes_ > 0) {
    const int reading = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (reading >= 0) {
      (void)!pread(reading, &last, 1, bytes_ - 1);
      close(reading);
    }
  }
  if (last != '\n' && write(file_, "\n", 1) == 1) ++bytes_;
  return absl::OkStatus();
}

absl::Status AuditLog::Rotate() {
  close(std::exchange(file_, -1));
  std::error_code error;
  fs::remove(Older(options_.files - 1), error);
  for (int i = options_.files - 2; i >= 0; --i) {
    if (fs::exists(Older(i), error)) fs::rename(Older(i), Older(i + 1), error);
  }
  return OpenFile();
}

void AuditLog::Append(const v1::AuditRecord& record) {
  const std::string line = absl::StrCat(ToJson(record, -1), "\n");
  const MutexLock lock(mutex_);
  absl::Status status;
  if (file_ < 0) status = OpenFile();
  if (status.ok() && bytes_ > 0 && bytes_ + static_cast<int64_t>(line.size()) > options_.file_bytes) status = Rotate();
  if (status.ok()) {
    const ssize_t written = write(file_, line.data(), line.size());
    bytes_ += std::max<ssize_t>(written, 0);
    if (written == static_cast<ssize_t>(line.size())) return;
    if (written >= 0) errno = ENOSPC;
    status = CannotWrite(path_);
  }
  server::LogError(absl::StrCat("audit: ", std::string(status.message())), {},
                   {{"call", record.call()},
                    {"token", record.token()},
                    {"resource", record.resource()},
                    {"outcome", record.outcome()}});
}

// Opened together, so that none is read twice when another one is begun meanwhile.
std::vector<AuditLog::Reader> AuditLog::OpenAll() const {
  std::vector<Reader> files;
  const MutexLock lock(mutex_);
  for (int i = 0; i < options_.files; ++i) {
    auto file = std::make_unique<std::ifstream>(Older(i), std::ios::binary);
    if (!file->is_open()) break;
    files.push_back(std::move(file));
  }
  return files;
}

absl::StatusOr<std::vector<v1::AuditRecord>> AuditLog::Latest(size_t most, std::string_view text) const {
  std::vector<v1::AuditRecord> found;
  for (const Reader& file : OpenAll()) {
    const std::string lines{std::istreambuf_iterator<char>(*file), std::istreambuf_iterator<char>()};
    if (file->bad()) return FieldError("--audit_log", path_, "cannot be read", absl::StatusCode::kUnavailable);
    for (size_t end = lines.size(); end > 0 && found.size() < most;) {
      const size_t before = lines.rfind('\n', end - 1);
      const size_t begin = before == std::string::npos ? 0 : before + 1;
      const std::string_view line = std::string_view(lines).substr(begin, end - begin);
      end = before == std::string::npos ? 0 : before;
      v1::AuditRecord record;
      if (line.find(text) == std::string_view::npos || !ParseJson(line, &record).ok() || !Has(record, text)) continue;
      found.push_back(std::move(record));
    }
    if (found.size() >= most) break;
  }
  return found;
}

}  // namespace legoai::access
