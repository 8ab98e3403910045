#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "core/checkpoint/storage_kinds.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::checkpoint {
namespace {

namespace fs = std::filesystem;

class DiskFile : public ChunkFile {
 public:
  explicit DiskFile(OutputFile file) : file_(std::move(file)) {}

  absl::Status Append(const void* data, int64_t bytes) override {
    RETURN_IF_ERROR(file_.WriteAt(end_, data, bytes));
    end_ += bytes;
    return absl::OkStatus();
  }
  absl::Status Close() override { return file_.Close(); }

 private:
  OutputFile file_;
  int64_t end_ = 0;
};

class DiskSource : public ChunkSource {
 public:
  explicit DiskSource(std::string path) : path_(std::move(path)) {}

  absl::StatusOr<std::string_view> Read(int64_t offset, int64_t bytes,
                                        const std::function<void(std::string_view)>& piece) override {
    // Read, and not only mapped: a read error in a mapping kills the process.
    if (piece) {
      RETURN_IF_ERROR(ReadPieces(path_, offset, bytes, piece));
    }
    if (!mapped_) {
      ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path_));
      mapped_ = std::move(mapped);
    }
    const std::string_view all = mapped_->bytes();
    if (offset + bytes > static_cast<int64_t>(all.size()))
      return FieldError(path_, "", "was cut short while it was read", absl::StatusCode::kDataLoss);
    return all.substr(static_cast<size_t>(offset), static_cast<size_t>(bytes));
  }
  bool Stays() const override { return true; }

 private:
  const std::string path_;
  std::optional<MappedFile> mapped_;
};

class FileStorage : public Storage {
 public:
  absl::StatusOr<std::unique_ptr<ChunkFile>> Create(const std::string& path, const BytesDone& done) override {
    ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path, done));
    return std::make_unique<DiskFile>(std::move(file));
  }
  std::unique_ptr<ChunkSource> Open(const std::string& path) override { return std::make_unique<DiskSource>(path); }

  absl::Status Write(const std::string& path, std::string_view contents) override { return WriteFile(path, contents); }
  absl::StatusOr<std::string> Read(const std::string& path) override { return ReadFile(path); }
  absl::Status Rename(const std::string& from, const std::string& to) override { return RenameFile(from, to); }

  absl::StatusOr<bool> IsThere(const std::string& path) override {
    std::error_code error;
    const fs::file_type type = fs::status(path, error).type();
    if (type == fs::file_type::none) return ReadError(path, "cannot see whether the checkpoint is whole", error.value());
    return type != fs::file_type::not_found;
  }
  // Also a link whose folder is gone: its name is taken.
  absl::StatusOr<bool> HasFolder(const std::string& path) override {
    std::error_code error;
    const fs::file_type type = fs::symlink_status(path, error).type();
    if (type == fs::file_type::none) return ReadError(path, "cannot be looked at", error.value());
    return type != fs::file_type::not_found;
  }

  absl::StatusOr<BytesOf> SizesIn(const std::string& folder) override {
    return BytesOf([folder](const std::string& name) -> absl::StatusOr<int64_t> {
      const std::string path = folder + "/" + name;
      std::error_code error;
      const auto bytes = fs::file_size(path, error);
      if (error) return ReadError(path, "cannot be looked at", error.value());
      return static_cast<int64_t>(bytes);
    });
  }

  absl::StatusOr<std::vector<std::string>> Names(const std::string& folder) override {
    std::vector<std::string> names;
    std::error_code error;
    fs::directory_iterator entry(folder, error);
    std::error_code unseen;
    if (error && !fs::exists(folder, unseen) && !unseen) return names;
    for (; !error && entry != fs::directory_iterator(); entry.increment(error))
      names.push_back(entry->path().filename().string());
    if (error) return FileError(folder, "cannot read the folder", error.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status MakeFolders(const std::string& path) override { return checkpoint::MakeFolders(path); }
  absl::Status Sync(const std::string& folder) override { return SyncDirectory(folder); }
  absl::Status MoveFolder(const std::string& from, const std::string& to, const Cancel&) override { return RenameFile(from, to); }
  absl::Status EndUploads(const std::string&, const BytesDone&) override { return absl::OkStatus(); }
  absl::Status Remove(const std::string& path, const BytesDone& done) override { return RemoveAll(path, done); }

  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override {
    struct statvfs facts;
    if (statvfs(path.c_str(), &facts) != 0) return FileError(path, "cannot ask for free space", errno);
    return static_cast<int64_t>(facts.f_bavail) * static_cast<int64_t>(facts.f_frsize);
  }
};

}  // namespace

std::unique_ptr<Storage> MakeFileStorage() { return std::make_unique<FileStorage>(); }

}  // namespace legoai::checkpoint
