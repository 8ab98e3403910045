// Reading Hugging Face's safetensors: one file, or a folder with model.safetensors or model.safetensors.index.json.
//
// A file is eight bytes with the length of a JSON header, the header ({"name": {"dtype", "shape", "data_offsets": [begin,
// end]}}), then the tensors' bytes, row-major and little-endian, which cover the rest of the file without gap or overlap. Files
// are mapped, not loaded: a rank that reads its shard touches only that shard's pages. Errors name the file and the tensor: a
// torn or wrong header, ranges that do not fit, unknown element types, missing tensors, missing shard files. Thread-safety: an
// open reader may be used by several threads.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/files.h"
#include "core/checkpoint/tensor_layout.h"
#include "proto/legoai/v1/dtype.pb.h"

namespace legoai::checkpoint {

struct TensorInfo {
  std::string name;  // "model.layers.0.mlp.up_proj.weight"
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  std::string file;    // path
  int64_t offset = 0;  // of the first byte, from the start of the file
  int64_t bytes = 0;
};

class SafetensorsReader {
 public:
  // `path` is a .safetensors file or a folder.
  static absl::StatusOr<SafetensorsReader> Open(const std::string& path);

  // Sorted by name.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  // The pointer lives as long as the reader. NotFound if there is no such tensor.
  absl::StatusOr<const TensorInfo*> Find(std::string_view name) const;

  // Copies a part of a tensor to `out`, row-major and dense: Volume(part.sizes) x DTypeBytes(dtype) bytes.
  absl::Status Read(std::string_view name, const Rectangle& part, void* out) const;

  // All bytes of a tensor, in place: valid as long as the reader, of any alignment.
  absl::StatusOr<std::string_view> Bytes(std::string_view name) const;

 private:
  SafetensorsReader() = default;
  absl::Status AddFile(const std::string& path);
  absl::Status AddIndex(const std::string& folder, const std::string& index_path);

  std::string path_;
  std::map<std::string, MappedFile> files_;  // by path
  std::vector<TensorInfo> tensors_;
};

// Writing Hugging Face's safetensors, as transformers reads them: one file, or several with an index.
//
// The header comes first in a file, so all tensors are declared up front; their contents then follow in any order, one at a time,
// so that a model larger than memory can be written. Within a file tensors are ordered as by the safetensors package: wider
// elements first, then by name; the same tensors give the same bytes. A file gets its name only when it is complete and on disk;
// until then it is called NAME.tmp. A folder that must appear atomically is written under another name and then renamed (files.h,
// ReplaceFolder). Errors name the file and the tensor. Thread-safety: one thread at a time.

// Size limit of a file in a folder, as in transformers.
inline constexpr int64_t kMaxFileBytes = int64_t{5} << 30;

struct TensorSpec {
  std::string name;
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
};

// One file.
class SafetensorsWriter {
 public:
  // Metadata of the header is {"format": "pt"}.
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path, std::vector<TensorSpec> tensors,
                                                  BytesDone done = nullptr);

  // All bytes of one declared tensor, row-major.
  absl::Status Write(std::string_view name, const void* data, int64_t bytes);

  // Error if a tensor is missing. Afterwards the file is on disk under its name.
  absl::Status Finish();

 private:
  struct Place {
    int64_t offset = 0, bytes = 0;
    bool written = false;
  };
  SafetensorsWriter(std::string path, OutputFile file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;
  OutputFile file_;
  std::map<std::string, Place, std::less<>> places_;
};

// A folder: model.safetensors if everything fits into `max_file_bytes`, else model-00001-of-0000N.safetensors … and
// model.safetensors.index.json. Tensors are assigned to files in the order given, so give them in the model's order.
class SafetensorsFolderWriter {
 public:
  // Creates the folder if needed.
  static absl::StatusOr<SafetensorsFolderWriter> Create(const std::string& folder, const std::vector<TensorSpec>& tensors,
                                                        int64_t max_file_bytes = kMaxFileBytes, const BytesDone& done = nullptr);

  absl::Status Write(std::string_view name, const void* data, int64_t bytes);
  // The index, if any, is written last: a folder with an index is complete.
  absl::Status Finish();

 private:
  SafetensorsFolderWriter() = default;

  std::string folder_;
  std::vector<SafetensorsWriter> writers_;
  std::vector<std::string> files_;                      // names, one per writer
  std::map<std::string, size_t, std::less<>> file_of_;  // by tensor
  int64_t total_bytes_ = 0;
};

}  // namespace legoai::checkpoint
