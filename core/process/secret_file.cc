#include "core/process/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"

namespace legoai::launch {
namespace {

constexpr size_t kMostBytes = 17 << 10;  // an identity provider's token of 16 KiB, and space around it

class File {
 public:
  File(const std::string& path, int flags, mode_t mode = 0) : descriptor_(open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

absl::Status SystemError(std::string_view field, const std::string& path, const char* what) {
  const bool full = errno == ENOSPC || errno == EDQUOT;
  const absl::StatusCode code = full              ? absl::StatusCode::kResourceExhausted
                                : errno == ENOENT ? absl::StatusCode::kNotFound
                                : errno == EACCES ? absl::StatusCode::kPermissionDenied
                                                  : absl::StatusCode::kFailedPrecondition;
  const char* const remedy = full ? "): make room on its disk, or name a file on another one" : ")";
  return FieldError(field, path, absl::StrCat(what, " (", std::strerror(errno), remedy), code);
}

// A new file of its owner's alone. False: errno says why not.
bool WriteNew(const std::string& path, const std::string& text) {
  const File file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (file.descriptor() < 0) return false;
  const ssize_t written = write(file.descriptor(), text.data(), text.size());
  if (written >= 0 && static_cast<size_t>(written) < text.size()) errno = ENOSPC;
  return written == static_cast<ssize_t>(text.size()) && fsync(file.descriptor()) == 0;
}

}  // namespace

absl::StatusOr<std::string> ReadSecretFile(std::string_view field, const std::string& path) {
  const File file(path, O_RDONLY | O_NONBLOCK);
  if (file.descriptor() < 0) return SystemError(field, path, "cannot be read: name the file that holds the token");
  struct stat facts {};
  if (fstat(file.descriptor(), &facts) != 0) return SystemError(field, path, "cannot be read");
  if (!S_ISREG(facts.st_mode)) return FieldError(field, path, "is not a file");
  // Its group may: in a container a mounted secret belongs to a group that is the container's own.
  if ((facts.st_mode & S_IRWXO) != 0) {
    return FieldError(field, path, absl::StrCat("is open to every user of this machine: chmod 600 ", path),
                      absl::StatusCode::kPermissionDenied);
  }
  char bytes[kMostBytes + 1];
  const ssize_t size = read(file.descriptor(), bytes, sizeof(bytes));
  if (size < 0) return SystemError(field, path, "cannot be read");
  const std::string text(absl::StripAsciiWhitespace(absl::string_view(bytes, static_cast<size_t>(size))));
  if (text.empty() || static_cast<size_t>(size) > kMostBytes || text.find_first_of(" \t\r\n") != std::string::npos)
    return FieldError(field, path, "must hold a token and nothing else, in one line");
  return text;
}

absl::Status WriteSecretFile(std::string_view field, const std::string& path, std::string_view secret) {
  // Beside it, then in its place: nobody finds half of it, or may read it by the rights of an older file.
  const std::string beside = absl::StrCat(path, ".new");
  unlink(beside.c_str());
  if (WriteNew(beside, absl::StrCat(std::string(secret), "\n")) && rename(beside.c_str(), path.c_str()) == 0)
    return absl::OkStatus();
  const absl::Status error = SystemError(field, path, "cannot be written");
  unlink(beside.c_str());
  return error;
}

}  // namespace legoai::launch
