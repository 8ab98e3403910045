#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/storage_kinds.h"
#include "core/objectstore/s3_client.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::checkpoint {
namespace {

using objectstore::kMostParts;
using objectstore::kPartBytes;
using objectstore::S3Client;
using objectstore::S3Object;
using objectstore::S3Upload;

// Of "s3://bucket/a/b": "a/b". The bucket is the client's.
std::string KeyOf(const std::string& path) {
  constexpr size_t kScheme = 5;
  const size_t slash = path.find('/', kScheme);
  return slash == std::string::npos ? "" : path.substr(slash + 1);
}

// Sends parts as they fill. A file of one part is put at once.
class ObjectFile : public ChunkFile {
 public:
  ObjectFile(S3Client client, std::string path, BytesDone done)
      : client_(std::move(client)), path_(std::move(path)), done_(std::move(done)) {
    upload_.key = KeyOf(path_);
  }
  ~ObjectFile() override {
    if (!upload_.id.empty()) client_.AbortUpload(upload_).IgnoreError();
  }

  absl::Status Append(const void* data, int64_t bytes) override {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      // The last part may be of any size, so a full one is kept until more comes.
      if (static_cast<int64_t>(buffer_.size()) == kPartBytes) {
        RETURN_IF_ERROR(SendBuffer());
      }
      // A part that lies in one piece is sent from where it is.
      const bool direct = buffer_.empty() && bytes > kPartBytes;
      const int64_t piece = std::min(bytes, kPartBytes - static_cast<int64_t>(buffer_.size()));
      if (direct) {
        RETURN_IF_ERROR(Send({at, static_cast<size_t>(piece)}));
      } else {
        if (buffer_.capacity() < static_cast<size_t>(kPartBytes)) buffer_.reserve(static_cast<size_t>(kPartBytes));
        buffer_.append(at, static_cast<size_t>(piece));
      }
      at += piece;
      bytes -= piece;
    }
    return absl::OkStatus();
  }

  absl::Status Close() override {
    if (upload_.id.empty()) {
      RETURN_IF_ERROR(client_.Put(upload_.key, buffer_));
      Tell(buffer_.size());
      return absl::OkStatus();
    }
    if (!buffer_.empty()) {
      RETURN_IF_ERROR(SendBuffer());
    }
    RETURN_IF_ERROR(client_.CompleteUpload(upload_, etags_, sent_));
    upload_.id.clear();
    return absl::OkStatus();
  }

 private:
  absl::Status SendBuffer() {
    RETURN_IF_ERROR(Send(buffer_));
    buffer_.clear();
    return absl::OkStatus();
  }

  absl::Status Send(std::string_view part) {
    if (upload_.id.empty()) {
      ASSIGN_OR_RETURN(upload_.id, client_.BeginUpload(upload_.key));
    }
    if (static_cast<int64_t>(etags_.size()) == kMostParts) {
      return FieldError(path_, "",
                        absl::StrCat("would be larger than ", kMostParts, " parts of ", kPartBytes,
                                     " bytes, the most that is written to an object store: train on more ranks, or keep "
                                     "checkpoints in a folder"),
                        absl::StatusCode::kOutOfRange);
    }
    ASSIGN_OR_RETURN(std::string etag, client_.UploadPart(upload_, static_cast<int64_t>(etags_.size()) + 1, part));
    etags_.push_back(std::move(etag));
    sent_ += static_cast<int64_t>(part.size());
    Tell(part.size());
    return absl::OkStatus();
  }

  void Tell(size_t bytes) const {
    if (done_) done_(static_cast<int64_t>(bytes));
  }

  S3Client client_;
  const std::string path_;
  const BytesDone done_;
  S3Upload upload_;
  std::vector<std::string> etags_;
  int64_t sent_ = 0;
  std::string buffer_;
};

class ObjectSource : public ChunkSource {
 public:
  ObjectSource(S3Client client, std::string path) : client_(std::move(client)), path_(std::move(path)) {}

  absl::StatusOr<std::string_view> Read(int64_t offset, int64_t bytes,
                                        const std::function<void(std::string_view)>& piece) override {
    if (bytes > room_) {
      buffer_ = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(bytes));
      room_ = bytes;
    }
    for (int64_t read = 0; read < bytes;) {
      const int64_t part = std::min(bytes - read, kPartBytes);
      const absl::Status got = client_.GetRange(KeyOf(path_), offset + read, part, buffer_.get() + read);
      if (absl::IsOutOfRange(got)) return FieldError(path_, "", std::string(got.message()), absl::StatusCode::kDataLoss);
      if (!got.ok()) return got;
      if (piece) piece({buffer_.get() + read, static_cast<size_t>(part)});
      read += part;
    }
    return std::string_view(buffer_.get(), static_cast<size_t>(bytes));
  }
  bool Stays() const override { return false; }

 private:
  S3Client client_;
  const std::string path_;
  std::unique_ptr<char[]> buffer_;
  int64_t room_ = 0;  // of the buffer
};

class ObjectStorage : public Storage {
 public:
  explicit ObjectStorage(S3Client client) : client_(std::move(client)) {}

  absl::StatusOr<std::unique_ptr<ChunkFile>> Create(const std::string& path, const BytesDone& done) override {
    return std::make_unique<ObjectFile>(client_, path, done);
  }
  std::unique_ptr<ChunkSource> Open(const std::string& path) override { return std::make_unique<ObjectSource>(client_, path); }

  absl::Status Write(const std::string& path, std::string_view contents) override { return client_.Put(KeyOf(path), contents); }
  absl::StatusOr<std::string> Read(const std::string& path) override { return client_.Get(KeyOf(path)); }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    ASSIGN_OR_RETURN(const std::string contents, Read(from));
    RETURN_IF_ERROR(Write(to, contents));
    return client_.Delete(KeyOf(from));
  }

  absl::StatusOr<bool> IsThere(const std::string& path) override {
    ASSIGN_OR_RETURN(const auto bytes, client_.Bytes(KeyOf(path)));
    return bytes.has_value();
  }
  absl::StatusOr<bool> HasFolder(const std::string& path) override { return client_.HasAny(KeyOf(path) + "/"); }

  absl::StatusOr<BytesOf> SizesIn(const std::string& folder) override {
    const std::string prefix = KeyOf(folder) + "/";
    ASSIGN_OR_RETURN(const auto listing, client_.ListFolder(prefix));
    std::map<std::string, int64_t> sizes;
    for (const S3Object& object : listing.objects) sizes[object.key.substr(prefix.size())] = object.bytes;
    return BytesOf([sizes = std::move(sizes), folder](const std::string& name) -> absl::StatusOr<int64_t> {
      const auto found = sizes.find(name);
      if (found == sizes.end()) return absl::NotFoundError(absl::StrCat(folder, "/", name, " is not there"));
      return found->second;
    });
  }

  absl::StatusOr<std::vector<std::string>> Names(const std::string& folder) override {
    const std::string prefix = KeyOf(folder) + "/";
    ASSIGN_OR_RETURN(const auto listing, client_.ListFolder(prefix));
    ASSIGN_OR_RETURN(const auto uploads, client_.ListUploads(prefix));
    std::set<std::string> names;
    const auto add = [&](const std::string& key) {
      const std::string rest = key.substr(prefix.size());
      names.insert(rest.substr(0, rest.find('/')));
    };
    for (const S3Object& object : listing.objects) add(object.key);
    for (const std::string& below : listing.folders) add(below);
    for (const S3Upload& upload : uploads) add(upload.key);
    names.erase("");  // an object that stands for the folder itself, as consoles make them
    return std::vector<std::string>(names.begin(), names.end());
  }

  absl::Status MakeFolders(const std::string&) override { return absl::OkStatus(); }
  absl::Status Sync(const std::string&) override { return absl::OkStatus(); }  // what was put is durable

  absl::Status MoveFolder(const std::string& from, const std::string& to, const Cancel& cancel) override {
    const std::string source = KeyOf(from) + "/", target = KeyOf(to) + "/";
    ASSIGN_OR_RETURN(std::vector<S3Object> objects, client_.List(source));
    if (objects.empty()) return absl::NotFoundError(absl::StrCat(from, " is not there"));
    // Manifests and their marks last there, and first here: the mark without its manifest would say that this is lost, and a
    // prepared manifest without the rest would be committed.
    std::stable_sort(objects.begin(), objects.end(),
                     [](const S3Object& a, const S3Object& b) { return CommitOrder(a.key) < CommitOrder(b.key); });
    std::vector<std::string> there;
    for (const S3Object& object : objects) {
      const std::string key = target + object.key.substr(source.size());
      absl::Status copied = CheckNotCancelled(cancel);
      if (copied.ok()) copied = client_.Copy(object, key, cancel);
      // Nobody takes what is left for a checkpoint, should it not go.
      if (absl::IsCancelled(copied)) client_.DeleteAll(there, nullptr).IgnoreError();
      there.push_back(key);
      // NotFound is for the caller's folder, which was there.
      if (absl::IsNotFound(copied))
        return absl::UnavailableError(absl::StrCat(from, " is changed by another process while it is moved: ", copied.message()));
      if (!copied.ok()) return copied;
    }
    std::reverse(objects.begin(), objects.end());
    while (!objects.empty() && CommitOrder(objects.front().key) > 0) {
      RETURN_IF_ERROR(client_.Delete(objects.front().key));
      objects.erase(objects.begin());
    }
    return client_.DeleteAll(KeysOf(objects), nullptr);
  }

  absl::Status EndUploads(const std::string& folder, const BytesDone& done) override {
    ASSIGN_OR_RETURN(const auto uploads, client_.ListUploads(KeyOf(folder) + "/"));
    for (const S3Upload& upload : uploads) {
      RETURN_IF_ERROR(client_.AbortUpload(upload));
      if (done) done(0);
    }
    return absl::OkStatus();
  }

  absl::Status Remove(const std::string& path, const BytesDone& done) override {
    const auto removed = [&done] {
      if (done) done(0);
    };
    ASSIGN_OR_RETURN(const auto bytes, client_.Bytes(KeyOf(path)));
    if (bytes) {
      RETURN_IF_ERROR(client_.Delete(KeyOf(path)));
      removed();
    }
    RETURN_IF_ERROR(EndUploads(path, done));
    ASSIGN_OR_RETURN(const auto objects, client_.List(KeyOf(path) + "/"));
    return client_.DeleteAll(KeysOf(objects), removed);
  }

  absl::StatusOr<int64_t> FreeBytes(const std::string&) override { return std::numeric_limits<int64_t>::max(); }

 private:
  static std::vector<std::string> KeysOf(const std::vector<S3Object>& objects) {
    std::vector<std::string> keys;
    for (const S3Object& object : objects) keys.push_back(object.key);
    return keys;
  }

  static int CommitOrder(const std::string& key) {
    if (absl::EndsWith(key, "/manifest.pb")) return 1;
    if (absl::EndsWith(key, "/manifest.pb.tmp")) return 2;
    return absl::EndsWith(key, "/committed") ? 3 : 0;
  }

  S3Client client_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Storage>> MakeObjectStorage(const objectstore::S3Url& place) {
  ASSIGN_OR_RETURN(S3Client client, S3Client::Create(place.bucket));
  return std::make_unique<ObjectStorage>(std::move(client));
}

}  // namespace legoai::checkpoint
