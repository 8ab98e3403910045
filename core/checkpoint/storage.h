// Where checkpoints are kept: a file system or an S3 object store, told apart by the path ("runs/a", "s3://bucket/a").
// Directories, manifests and chunks (directory.h, manifest.h, chunks.h) are the same in both.
//
// A checkpoint is whole once its manifest is there, which appears at once: by a rename in a file system, and in an object store,
// which has none, as an object, which is there whole or not at all and is put last. Errors name the path: NotFound if nothing is
// there; DataLoss if what is there has lost bytes; those of files.h and of core/objectstore/s3_client.h. Thread-safety: an object
// belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"
#include "core/objectstore/s3_request.h"

namespace legoai::checkpoint {

// A large file that is written from its beginning to its end. It counts once Close() has returned OK; what was not closed is
// given up.
class ChunkFile {
 public:
  virtual ~ChunkFile() = default;
  virtual absl::Status Append(const void* data, int64_t bytes) = 0;
  virtual absl::Status Close() = 0;
};

// A large file that is read in pieces.
class ChunkSource {
 public:
  virtual ~ChunkSource() = default;
  // The bytes, valid until the next call. `piece`, where it is given, gets them first, in order and as they come from the disk or
  // the store. DataLoss: the file ends before them.
  virtual absl::StatusOr<std::string_view> Read(int64_t offset, int64_t bytes,
                                                const std::function<void(std::string_view)>& piece) = 0;
  // Whether bytes that were read once may be read again unchecked.
  virtual bool Stays() const = 0;
};

class Storage {
 public:
  virtual ~Storage() = default;

  // Creates or replaces a large file.
  virtual absl::StatusOr<std::unique_ptr<ChunkFile>> Create(const std::string& path, const BytesDone& done) = 0;
  virtual std::unique_ptr<ChunkSource> Open(const std::string& path) = 0;

  // Small files, whole. In an object store a reader sees the old contents or the new; in a file system it may see half of them.
  virtual absl::Status Write(const std::string& path, std::string_view contents) = 0;
  virtual absl::StatusOr<std::string> Read(const std::string& path) = 0;
  // Atomic and durable: `to` is not there before, or has its old contents, and has those of `from` afterwards.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;

  // Whether there is a file of this name.
  virtual absl::StatusOr<bool> IsThere(const std::string& path) = 0;
  // Whether there is a folder of this name; in an object store, anything in it.
  virtual absl::StatusOr<bool> HasFolder(const std::string& path) = 0;
  // Of the files of a folder, by name; in an object store from one listing.
  using BytesOf = std::function<absl::StatusOr<int64_t>(const std::string& name)>;
  virtual absl::StatusOr<BytesOf> SizesIn(const std::string& folder) = 0;
  // Of files and folders directly below, sorted; none if the folder is not there. In an object store also of folders with nothing
  // but uploads that were cut short.
  virtual absl::StatusOr<std::vector<std::string>> Names(const std::string& folder) = 0;

  virtual absl::Status MakeFolders(const std::string& path) = 0;
  // Has all entries of a folder on the disk.
  virtual absl::Status Sync(const std::string& folder) = 0;
  // Atomic in a file system. In an object store every object is copied there and then removed here, manifests first, so that what
  // is left of a move that was cut short is no checkpoint. NotFound: there is no folder `from`. `cancel` (files.h) is polled
  // while objects are copied: Cancelled leaves all in `from`, and takes away what was copied.
  virtual absl::Status MoveFolder(const std::string& from, const std::string& to, const Cancel& cancel) = 0;
  // Gives up uploads to this folder, and to all below, that nobody goes on with; in a file system there are none.
  virtual absl::Status EndUploads(const std::string& folder, const BytesDone& done) = 0;
  // A file or a folder with its contents, uploads that were cut short among them; OK if nothing is there. `done` as RemoveAll of
  // files.h has it.
  virtual absl::Status Remove(const std::string& path, const BytesDone& done) = 0;
  // That may be written there by this process. An object store has no bound.
  virtual absl::StatusOr<int64_t> FreeBytes(const std::string& path) = 0;
};

// Errors: a URL that names no place in an object store (core/objectstore/s3_url.h), or an environment that does not say how it is
// reached (s3_options.h).
absl::StatusOr<std::unique_ptr<Storage>> StorageOf(const std::string& path);

// Whether the path names a place in an object store, which all hosts see alike.
bool IsInObjectStore(const std::string& path);

// While it lives, `done` is called with 0 at least once a second during this thread's requests to an object store, which may have
// to be made again for minutes. Empty, and where all is in a file system, it does nothing.
class AliveDuring : public objectstore::AliveDuring {
 public:
  explicit AliveDuring(const BytesDone& done) : objectstore::AliveDuring([done] { if (done) done(0); }) {}
};

// Error unless a small file can be written and removed below `root`: before a training begins whose checkpoints could not be
// saved. In a file system nothing is done, since its folder was made.
absl::Status CheckWritable(const std::string& root);

}  // namespace legoai::checkpoint
