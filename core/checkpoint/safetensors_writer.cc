#include "core/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/checkpoint/tensor_layout.h"
#include "proto/errors.h"
#include "proto/status.h"

namespace legoai::checkpoint {
namespace {

std::string FieldOf(const std::string& file, std::string_view tensor) { return absl::StrCat(file, ": ", std::string(tensor)); }

// Names that are not UTF-8 are written with U+FFFD instead of thrown at.
constexpr auto kReplace = nlohmann::json::error_handler_t::replace;

absl::Status Remove(const std::string& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  return error ? FileError(path, "cannot remove", error.value()) : absl::OkStatus();
}

int64_t Bytes(const TensorSpec& tensor) { return Volume(tensor.shape) * DTypeBytes(tensor.dtype); }

// Position of a type in the safetensors package's own list; tensors of later types come first, so that wide elements are aligned.
int Width(v1::DType dtype) {
  constexpr v1::DType kOrder[] = {v1::BOOL,     v1::UINT8, v1::INT8,    v1::INT16,   v1::FLOAT16,
                                  v1::BFLOAT16, v1::INT32, v1::FLOAT32, v1::FLOAT64, v1::INT64};
  return static_cast<int>(std::find(std::begin(kOrder), std::end(kOrder), dtype) - std::begin(kOrder));
}

absl::Status CheckSpecs(const std::string& file, const std::vector<TensorSpec>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& tensor = tensors[i];
    if (DTypeBytes(tensor.dtype) == 0) return FieldError(FieldOf(file, tensor.name), "", "has no element type");
    if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t size) { return size < 0; }))
      return FieldError(FieldOf(file, tensor.name), "", "has a negative size");
    if (tensor.name == "__metadata__") return FieldError(FieldOf(file, tensor.name), "", "the format keeps this name for itself");
    if (i > 0 && tensors[i - 1].name == tensor.name && Width(tensors[i - 1].dtype) == Width(tensor.dtype))
      return FieldError(FieldOf(file, tensor.name), "", "is announced twice");
  }
  return absl::OkStatus();
}

// The eight bytes of length and the JSON, padded with spaces to a multiple of eight.
std::string Header(const std::vector<TensorSpec>& tensors) {
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  int64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    const int64_t end = offset + Bytes(tensor);
    header[tensor.name] = {
        {"dtype", std::string(SafetensorsName(tensor.dtype))}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump(-1, ' ', false, kReplace);
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

}  // namespace

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(const std::string& path, std::vector<TensorSpec> tensors,
                                                            BytesDone done) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorSpec& a, const TensorSpec& b) {
    return std::pair(-Width(a.dtype), std::string_view(a.name)) < std::pair(-Width(b.dtype), std::string_view(b.name));
  });
  RETURN_IF_ERROR(CheckSpecs(path, tensors));
  ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path + ".tmp", std::move(done)));
  SafetensorsWriter writer(path, std::move(file));
  const std::string header = Header(tensors);
  RETURN_IF_ERROR(writer.file_.WriteAt(0, header.data(), static_cast<int64_t>(header.size())));
  int64_t offset = static_cast<int64_t>(header.size());
  for (const TensorSpec& tensor : tensors) {
    if (!writer.places_.emplace(tensor.name, Place{offset, Bytes(tensor)}).second)
      return FieldError(FieldOf(path, tensor.name), "", "is announced twice");
    offset += Bytes(tensor);
  }
  return writer;
}

absl::Status SafetensorsWriter::Write(std::string_view name, const void* data, int64_t bytes) {
  const auto place = places_.find(name);
  if (place == places_.end()) return FieldError(FieldOf(path_, name), "", "was not announced");
  if (place->second.bytes != bytes)
    return FieldError(FieldOf(path_, name), absl::StrCat(bytes),
                      absl::StrCat("bytes were given, ", place->second.bytes, " announced"));
  absl::Status status = file_.WriteAt(place->second.offset, data, bytes);
  if (status.ok()) place->second.written = true;
  return status;
}

absl::Status SafetensorsWriter::Finish() {
  for (const auto& [name, place] : places_)
    if (!place.written) return FieldError(FieldOf(path_, name), "", "was announced and never written");
  absl::Status status = file_.Close();
  return status.ok() ? RenameFile(path_ + ".tmp", path_) : status;
}

absl::StatusOr<SafetensorsFolderWriter> SafetensorsFolderWriter::Create(const std::string& folder,
                                                                        const std::vector<TensorSpec>& tensors,
                                                                        int64_t max_file_bytes, const BytesDone& done) {
  RETURN_IF_ERROR(MakeFolders(folder));
  SafetensorsFolderWriter writer;
  writer.folder_ = folder;
  std::vector<std::vector<TensorSpec>> parts(1);
  int64_t filled = 0;
  for (const TensorSpec& tensor : tensors) {
    if (filled > 0 && filled + Bytes(tensor) > max_file_bytes) {
      parts.emplace_back();
      filled = 0;
    }
    filled += Bytes(tensor);
    writer.total_bytes_ += Bytes(tensor);
    if (!writer.file_of_.emplace(tensor.name, parts.size() - 1).second)
      return FieldError(FieldOf(folder, tensor.name), "", "is announced twice");
    parts.back().push_back(tensor);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    writer.files_.push_back(parts.size() == 1 ? "model.safetensors"
                                              : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, parts.size()));
    ASSIGN_OR_RETURN(auto file, SafetensorsWriter::Create(folder + "/" + writer.files_[i], std::move(parts[i]), done));
    writer.writers_.push_back(std::move(file));
  }
  return writer;
}

absl::Status SafetensorsFolderWriter::Write(std::string_view name, const void* data, int64_t bytes) {
  const auto file = file_of_.find(name);
  if (file == file_of_.end()) return FieldError(FieldOf(folder_, name), "", "was not announced");
  return writers_[file->second].Write(name, data, bytes);
}

absl::Status SafetensorsFolderWriter::Finish() {
  for (SafetensorsWriter& writer : writers_) {
    RETURN_IF_ERROR(writer.Finish());
  }
  // Readers look for one file first and an index next, so what an earlier export left of the other kind must go.
  const std::string single = folder_ + "/model.safetensors", path = single + ".index.json";
  if (writers_.size() == 1) return Remove(path);
  nlohmann::json index = {{"metadata", {{"total_size", total_bytes_}}}, {"weight_map", nlohmann::json::object()}};
  for (const auto& [tensor, file] : file_of_) index["weight_map"][tensor] = files_[file];
  const absl::Status status = ReplaceFile(path, index.dump(2, ' ', false, kReplace) + "\n");
  return status.ok() ? Remove(single) : status;
}

}  // namespace legoai::checkpoint
