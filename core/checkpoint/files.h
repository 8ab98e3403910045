// Files that must not be half there: mapped reading, writing that is on the disk when it says so, and the digests of contents.
//
// Errors name the path: NotFound where nothing is there, ResourceExhausted where the disk or a quota is full,
// OutOfRange where a file would grow beyond a limit on its size.
// Thread-safety: objects belong to one thread at a time; the bytes of a MappedFile may be read by several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/read_file.h"

namespace legoai::checkpoint {

using legoai::FileError;
using legoai::ReadError;
using legoai::ReadFile;

// Told of bytes as they are read, or written: the sign that a long piece of work goes on. May be empty.
using BytesDone = std::function<void(int64_t bytes)>;

// Asked now and then, in the midst of long work, whether to give it up; the work then ends with Cancelled. May be empty.
using Cancel = std::function<bool()>;
absl::Status CheckNotCancelled(const Cancel& cancel);

// Bytes that are read or written between two calls of a BytesDone, at the most.
inline constexpr int64_t kPieceBytes = int64_t{8} << 20;

// A whole file, mapped read-only for as long as the object lives. Pages are read when touched.
class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::string_view bytes() const { return {data_, size_}; }

 private:
  MappedFile() = default;
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// A file being written. Until Close() has returned OK nothing is promised to be on the disk. What was written is synced every
// 64 MiB, so that Close() is short however large the file is, and what `done` was told is near to what the disk has.
class OutputFile {
 public:
  // Makes the file, or empties it.
  static absl::StatusOr<OutputFile> Create(const std::string& path, BytesDone done = nullptr);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();  // closes without syncing

  absl::Status WriteAt(int64_t offset, const void* data, int64_t bytes);
  // Syncs the contents to the disk and closes.
  absl::Status Close();

  const std::string& path() const { return path_; }

 private:
  OutputFile() = default;
  std::string path_;
  int descriptor_ = -1;
  int64_t unsynced_ = 0;
  BytesDone done_;
};

// Gives `bytes` of the file from `offset` on to `piece`, one piece after the other, in order. They are read and not mapped: what
// a disk cannot read of a mapping ends the process (SIGBUS). Errors: those of ReadError; DataLoss where the file ends before.
absl::Status ReadPieces(const std::string& path, int64_t offset, int64_t bytes,
                        const std::function<void(std::string_view)>& piece);

// Makes or replaces a file and syncs it; a reader may see it half written.
absl::Status WriteFile(const std::string& path, std::string_view contents);

// Makes or replaces a small file, and syncs it: a reader sees it whole or as it was. `path`.tmp is used, and gone on an error.
absl::Status ReplaceFile(const std::string& path, std::string_view contents);

// Makes a folder and those that it lies in, where they are not there.
absl::Status MakeFolders(const std::string& path);

// Gives the file `from` the name `to` at once and for good: renames, then syncs the directory of `to`.
absl::Status RenameFile(const std::string& from, const std::string& to);

// Gives the folder `from`, whose contents are on the disk, the name `to` at once and for good. A folder that was called `to` is
// there until then, and removed afterwards as RemoveAll does.
absl::Status ReplaceFolder(const std::string& from, const std::string& to, const BytesDone& done = nullptr);

// ReplaceFolder on a file system that cannot exchange two names: for a moment no folder is called `to`, and what was is called
// `to`.replaced. On an error it has its name again.
absl::Status ReplaceFolderInTwoSteps(const std::string& from, const std::string& to, const BytesDone& done = nullptr);

// Undoes or ends what a process that was killed in ReplaceFolderInTwoSteps left: there is no `to`.replaced afterwards, and `to`
// is there if it ever was. While nobody replaces it.
absl::Status RestoreFolder(const std::string& to);

// Removes a file, or a folder with all that is in it, and calls `done` with 0 after each entry: a slow disk takes its time for
// every one. OK where nothing is there.
absl::Status RemoveAll(const std::string& path, const BytesDone& done = nullptr);

// Puts the entries of a directory (files made, renamed, removed) on the disk.
absl::Status SyncDirectory(const std::string& path);

// CRC-32C (Castagnoli), the checksum of checkpoint chunks, and SHA-256, the digest by which datasets, tokenizers and manifests
// are known.

// The checksum of `bytes` bytes that follow data whose checksum is `crc` (0: nothing precedes them), so that
// Crc32c(b, Crc32c(a)) is the checksum of a and b together.
uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc = 0);

// 64 hexadecimal digits, lower case.
std::string Sha256(std::string_view bytes);
// The same of many bytes. Cancelled.
absl::StatusOr<std::string> Sha256(std::string_view bytes, const Cancel& cancel);

// The same of a file's contents. Errors name the path; Cancelled.
absl::StatusOr<std::string> Sha256OfFile(const std::string& path, const Cancel& cancel = nullptr);

}  // namespace legoai::checkpoint
