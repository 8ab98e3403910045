// Reading Hugging Face's safetensors: one file, or a folder with model.safetensors or model.safetensors.index.json.
//
// A file is eight bytes with the length of a JSON header, the header ({"name": {"dtype", "shape", "data_offsets": [begin,
// end]}}), then the tensors' bytes, row-major and little-endian, which cover the rest of the file without gap or overlap. Files
// are mapped, not loaded: a rank that reads its shard touches only that shard's pages. Errors name the file and the tensor: a
// torn or wrong header, ranges that do not fit, unknown element types, missing tensors, missing shard files. Thread-safety: a
// reader that was opened may be used by several threads.
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

}  // namespace legoai::checkpoint
