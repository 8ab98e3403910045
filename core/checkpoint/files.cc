#include "core/checkpoint/files.h"

#include <fcntl.h>
#include <isa-l/crc.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::checkpoint {
namespace {

constexpr int64_t kSyncBytes = int64_t{64} << 20;
// What a folder is called while another takes its place; not a name that a user would choose, for it is removed.
constexpr char kReplaced[] = ".replaced";

// The folder that holds the path.
std::string FolderOf(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

absl::Status ReadDescriptor(const std::string& path, int descriptor, int64_t offset, int64_t bytes,
                            const std::function<void(std::string_view)>& piece) {
  std::vector<char> buffer(static_cast<size_t>(std::min(bytes, kPieceBytes)));
  while (bytes > 0) {
    const ssize_t got = pread(descriptor, buffer.data(), static_cast<size_t>(std::min(bytes, kPieceBytes)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ReadError(path, "cannot read", errno);
    if (got == 0) return FieldError(path, "", absl::StrCat("ends at byte ", offset), absl::StatusCode::kDataLoss);
    piece({buffer.data(), static_cast<size_t>(got)});
    offset += got;
    bytes -= got;
  }
  return absl::OkStatus();
}

constexpr size_t kBytes = size_t{1} << 20;  // read at a time

// Bytes are given piece by piece.
class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void Add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  std::string Finish() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(digest), size));
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace

absl::Status CheckNotCancelled(const Cancel& cancel) {
  return cancel && cancel() ? absl::CancelledError("given up as asked") : absl::OkStatus();
}

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const int descriptor, OpenRegularFile(path));
  struct stat facts;
  if (fstat(descriptor, &facts) != 0) {
    const int error = errno;
    close(descriptor);
    return ReadError(path, "cannot look at", error);
  }
  MappedFile file;
  file.size_ = static_cast<size_t>(facts.st_size);
  if (file.size_ > 0) {  // an empty mapping is an error to mmap
    void* data = mmap(nullptr, file.size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    const int error = errno;
    close(descriptor);
    if (data == MAP_FAILED) return FileError(path, "cannot map", error);
    file.data_ = static_cast<const char*>(data);
  } else {
    close(descriptor);
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<char*>(data_), size_);
}

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path, BytesDone done) {
  OutputFile file;
  file.path_ = path;
  file.done_ = std::move(done);
  // Without O_NONBLOCK a pipe that nobody reads would be waited for.
  file.descriptor_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644);
  if (file.descriptor_ < 0) return FileError(path, "cannot create", errno);
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      unsynced_(other.unsynced_),
      done_(std::move(other.done_)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(unsynced_, other.unsynced_);
  std::swap(done_, other.done_);
  return *this;
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status OutputFile::WriteAt(int64_t offset, const void* data, int64_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(descriptor_, at, static_cast<size_t>(std::min(bytes, kPieceBytes)), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError(path_, "cannot write", errno);
    at += written;
    offset += written;
    bytes -= written;
    unsynced_ += written;
    if (unsynced_ >= kSyncBytes) {
      if (fdatasync(descriptor_) != 0) return FileError(path_, "cannot sync to disk", errno);
      unsynced_ = 0;
    }
    if (done_) done_(written);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Close() {
  if (fsync(descriptor_) != 0) return FileError(path_, "cannot sync to disk", errno);
  if (close(std::exchange(descriptor_, -1)) != 0) return FileError(path_, "cannot close", errno);
  return absl::OkStatus();
}

absl::Status ReadPieces(const std::string& path, int64_t offset, int64_t bytes,
                        const std::function<void(std::string_view)>& piece) {
  ASSIGN_OR_RETURN(const int descriptor, OpenRegularFile(path));
  const absl::Status status = ReadDescriptor(path, descriptor, offset, bytes, piece);
  close(descriptor);
  return status;
}

absl::Status WriteFile(const std::string& path, std::string_view contents) {
  ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  RETURN_IF_ERROR(file.WriteAt(0, contents.data(), static_cast<int64_t>(contents.size())));
  return file.Close();
}

absl::Status ReplaceFile(const std::string& path, std::string_view contents) {
  const std::string temporary = path + ".tmp";
  absl::Status status = WriteFile(temporary, contents);
  if (status.ok()) status = RenameFile(temporary, path);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::Status MakeFolders(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? FileError(path, "cannot make the folder", error.value()) : absl::OkStatus();
}

absl::Status RenameFile(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) return FileError(to, "cannot rename into place", errno);
  return SyncDirectory(FolderOf(to));
}

absl::Status ReplaceFolder(const std::string& from, const std::string& to, const BytesDone& done) {
  RETURN_IF_ERROR(SyncDirectory(from));
  if (rename(from.c_str(), to.c_str()) == 0) return SyncDirectory(FolderOf(to));
  if (errno != ENOTEMPTY && errno != EEXIST) return FileError(to, "cannot rename into place", errno);
  // `to` is there: the two change names, and what has the name `from` then is removed.
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) != 0)
    return ReplaceFolderInTwoSteps(from, to, done);
  RETURN_IF_ERROR(SyncDirectory(FolderOf(to)));
  return RemoveAll(from, done);
}

absl::Status ReplaceFolderInTwoSteps(const std::string& from, const std::string& to, const BytesDone& done) {
  const std::string old = to + kReplaced;
  RETURN_IF_ERROR(RemoveAll(old, done));
  if (rename(to.c_str(), old.c_str()) != 0) return FileError(to, "cannot rename out of the way", errno);
  if (rename(from.c_str(), to.c_str()) != 0) {
    const absl::Status failed = FileError(to, "cannot rename into place", errno);
    if (rename(old.c_str(), to.c_str()) == 0) return failed;
    return FieldError(to, "", absl::StrCat(failed.message(), "; what was there is now ", old, ": rename it back"), failed.code());
  }
  RETURN_IF_ERROR(SyncDirectory(FolderOf(to)));
  return RemoveAll(old, done);
}

absl::Status RestoreFolder(const std::string& to) {
  const std::string old = to + kReplaced;
  struct stat facts;
  if (lstat(to.c_str(), &facts) == 0) return RemoveAll(old);
  if (errno != ENOENT) return FileError(to, "cannot look at", errno);
  if (rename(old.c_str(), to.c_str()) == 0) return SyncDirectory(FolderOf(to));
  return errno == ENOENT ? absl::OkStatus() : FileError(to, "cannot rename back into place", errno);
}

absl::Status RemoveAll(const std::string& path, const BytesDone& done) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (type == fs::file_type::not_found) return absl::OkStatus();
  if (type == fs::file_type::none) return FileError(path, "cannot remove", error.value());
  if (type == fs::file_type::directory) {
    std::vector<std::string> entries;  // read before any is removed: what a listing shows of a folder that changes is not said
    fs::directory_iterator entry(path, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) entries.push_back(entry->path().string());
    if (error) return FileError(path, "cannot remove", error.value());
    for (const std::string& inside : entries) {
      RETURN_IF_ERROR(RemoveAll(inside, done));
    }
  }
  fs::remove(path, error);
  if (error) return FileError(path, "cannot remove", error.value());
  if (done) done(0);
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return FileError(path, "cannot open", errno);
  const int result = fsync(descriptor);
  const int error = errno;
  close(descriptor);
  // Some file systems have nothing to sync in a directory and say EINVAL.
  if (result != 0 && error != EINVAL) return FileError(path, "cannot sync to disk", error);
  return absl::OkStatus();
}

uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc) {
  constexpr size_t kPiece = size_t{1} << 30;  // the library counts in int
  // The library asks for a mutable pointer and does not write. It leaves the inversions at both ends to the caller.
  auto* at = const_cast<unsigned char*>(static_cast<const unsigned char*>(data));
  uint32_t state = ~crc;
  while (bytes > 0) {
    const size_t piece = std::min(bytes, kPiece);
    state = crc32_iscsi(at, static_cast<int>(piece), state);
    at += piece;
    bytes -= piece;
  }
  return ~state;
}

std::string Sha256(std::string_view bytes) {
  Digest digest;
  digest.Add(bytes);
  return digest.Finish();
}

absl::StatusOr<std::string> Sha256(std::string_view bytes, const Cancel& cancel) {
  Digest digest;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(kBytes, bytes.size()))) {
    RETURN_IF_ERROR(CheckNotCancelled(cancel));
    digest.Add(bytes.substr(0, kBytes));
  }
  return digest.Finish();
}

absl::StatusOr<std::string> Sha256OfFile(const std::string& path, const Cancel& cancel) {
  ASSIGN_OR_RETURN(const int descriptor, OpenRegularFile(path));
  Digest digest;
  std::vector<char> bytes(kBytes);
  absl::Status status;
  while (status.ok()) {
    const ssize_t got = read(descriptor, bytes.data(), bytes.size());
    if (got == 0) break;
    if (got > 0) digest.Add({bytes.data(), static_cast<size_t>(got)});
    if (got < 0 && errno != EINTR) status = FileError(path, "cannot read", errno);
    status.Update(CheckNotCancelled(cancel));
  }
  close(descriptor);
  if (!status.ok()) return status;
  return digest.Finish();
}

}  // namespace legoai::checkpoint
