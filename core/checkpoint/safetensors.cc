#include "core/checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "proto/text.h"

namespace legoai::checkpoint {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "tensors are read in the host's byte order");

constexpr int64_t kLengthBytes = 8;
constexpr uint64_t kMostHeaderBytes = 100'000'000;  // as in the safetensors package
constexpr char kTorn[] = "the file is torn or not a safetensors file; fetch it again";

std::string FieldOf(const std::string& file, const std::string& tensor) { return absl::StrCat(file, ": ", tensor); }

std::optional<int64_t> Count(const json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  return value.get<int64_t>();
}

std::optional<std::vector<int64_t>> Counts(const json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_array()) return std::nullopt;
  std::vector<int64_t> counts;
  for (const json& item : *found) {
    const std::optional<int64_t> count = Count(item);
    if (!count) return std::nullopt;
    counts.push_back(*count);
  }
  return counts;
}

// The bytes of a dense tensor; nothing where they cannot be counted in 63 bits.
std::optional<int64_t> DenseBytes(const std::vector<int64_t>& shape, int64_t element_bytes) {
  int64_t bytes = element_bytes;
  for (int64_t size : shape)
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  return bytes;
}

// One tensor of the header. Its offset counts from the end of the header still.
absl::StatusOr<TensorInfo> ParseTensor(const std::string& file, const std::string& name, const json& entry) {
  const std::string field = FieldOf(file, name);
  if (!IsPrintable(name)) return FieldError(field, "", "a name with control characters; convert the weights again");
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string())
    return FieldError(field, "", absl::StrCat("the header gives no dtype; ", kTorn));
  const std::string dtype_name = entry["dtype"].get<std::string>();
  const std::optional<v1::DType> dtype = DTypeFromSafetensorsName(dtype_name);
  if (!dtype) return FieldError(field, dtype_name, "unknown element type; convert the weights to BF16, F16 or F32");
  const auto shape = Counts(entry, "shape");
  const auto range = Counts(entry, "data_offsets");
  if (!shape || !range || range->size() != 2 || (*range)[0] > (*range)[1])
    return FieldError(field, "", absl::StrCat("the header gives no valid shape and data_offsets; ", kTorn));
  TensorInfo info{name, *dtype, *shape, file, (*range)[0], (*range)[1] - (*range)[0]};
  if (DenseBytes(info.shape, DTypeBytes(info.dtype)) != info.bytes)
    return FieldError(field, absl::StrCat(info.bytes), absl::StrCat("bytes that do not match its shape and type; ", kTorn));
  return info;
}

// Tensors must cover the bytes after the header one after the other.
absl::Status CheckCover(std::vector<TensorInfo>& tensors, const std::string& file, int64_t data_bytes) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.offset, a.offset + a.bytes) < std::pair(b.offset, b.offset + b.bytes);
  });
  int64_t end = 0;
  for (const TensorInfo& info : tensors) {
    const std::string range = absl::StrCat("[", info.offset, ", ", info.offset + info.bytes, "]");
    const std::string field = FieldOf(file, info.name);
    if (info.offset + info.bytes > data_bytes)
      return FieldError(field, range, absl::StrCat("data_offsets beyond the file's ", data_bytes, " bytes of data; ", kTorn));
    if (info.offset < end) return FieldError(field, range, absl::StrCat("data_offsets overlap another tensor's; ", kTorn));
    if (info.offset > end) return FieldError(field, range, absl::StrCat("data_offsets leave a gap before; ", kTorn));
    end = info.offset + info.bytes;
  }
  if (end != data_bytes)
    return FieldError(file, absl::StrCat(data_bytes - end), absl::StrCat("bytes belong to no tensor; ", kTorn));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TensorInfo>> ParseFile(const std::string& file, std::string_view bytes) {
  uint64_t length = 0;
  const int64_t rest = static_cast<int64_t>(bytes.size()) - kLengthBytes;
  if (rest >= 0) std::memcpy(&length, bytes.data(), kLengthBytes);
  if (rest < 0 || length > static_cast<uint64_t>(rest))
    return FieldError(file, absl::StrCat(length), absl::StrCat("bytes of header in a file of ", bytes.size(), " bytes; ", kTorn));
  if (length > kMostHeaderBytes)
    return FieldError(file, absl::StrCat(length), absl::StrCat("bytes of header, and the format allows ", kMostHeaderBytes));
  const std::string_view text = bytes.substr(kLengthBytes, length);
  const json header = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!header.is_object()) return FieldError(file, "", absl::StrCat("the header is not a JSON object; ", kTorn));
  std::vector<TensorInfo> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    ASSIGN_OR_RETURN(TensorInfo info, ParseTensor(file, name, entry));
    tensors.push_back(std::move(info));
  }
  RETURN_IF_ERROR(CheckCover(tensors, file, rest - static_cast<int64_t>(length)));
  for (TensorInfo& info : tensors) info.offset += kLengthBytes + static_cast<int64_t>(length);
  return tensors;
}

// The weight_map of an index: tensor name to file name.
absl::StatusOr<std::map<std::string, std::string>> ParseIndex(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadFile(path));
  const json index = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    return FieldError(path, "", "not a JSON object with a weight_map; fetch the index again");
  std::map<std::string, std::string> map;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const std::string value = file.is_string() ? file.get<std::string>() : file.dump();
    if (!file.is_string() || value.empty() || std::filesystem::path(value).filename() != value || value == ".." ||
        !IsPrintable(value) || !IsPrintable(name))
      return FieldError(FieldOf(path, name), value, "not the name of a file in the index's folder");
    map[name] = value;
  }
  return map;
}

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

absl::Status SafetensorsReader::AddFile(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(std::vector<TensorInfo> parsed, ParseFile(path, file.bytes()));
  std::move(parsed.begin(), parsed.end(), std::back_inserter(tensors_));
  files_.emplace(path, std::move(file));
  return absl::OkStatus();
}

absl::Status SafetensorsReader::AddIndex(const std::string& folder, const std::string& index_path) {
  ASSIGN_OR_RETURN(const auto map, ParseIndex(index_path));
  std::set<std::string> names;
  for (const auto& [tensor, file] : map) names.insert(file);
  for (const std::string& name : names) {
    absl::Status status = AddFile(folder + "/" + name);
    if (!status.ok()) return Annotate(status, index_path);
  }
  // What a shard holds beyond the index is not part of the model.
  std::erase_if(tensors_, [&](const TensorInfo& info) {
    const auto listed = map.find(info.name);
    return listed == map.end() || folder + "/" + listed->second != info.file;
  });
  std::set<std::string> found;
  for (const TensorInfo& info : tensors_) found.insert(info.name);
  for (const auto& [tensor, file] : map)
    if (!found.contains(tensor))
      return FieldError(FieldOf(folder + "/" + file, tensor), "",
                        absl::StrCat("missing, though ", index_path, " lists it; fetch the file again"),
                        absl::StatusCode::kNotFound);
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  namespace fs = std::filesystem;
  SafetensorsReader reader;
  reader.path_ = path;
  const std::string single = path + "/model.safetensors", index = single + ".index.json";
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    RETURN_IF_ERROR(reader.AddFile(path));
  } else if (fs::exists(single, ignored)) {
    RETURN_IF_ERROR(reader.AddFile(single));
  } else if (fs::exists(index, ignored)) {
    RETURN_IF_ERROR(reader.AddIndex(path, index));
  } else {
    return FieldError(path, "", "holds neither model.safetensors nor model.safetensors.index.json; give a folder with weights",
                      absl::StatusCode::kNotFound);
  }
  std::sort(reader.tensors_.begin(), reader.tensors_.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  return reader;
}

absl::StatusOr<const TensorInfo*> SafetensorsReader::Find(std::string_view name) const {
  const auto found = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                      [](const TensorInfo& a, std::string_view b) { return a.name < b; });
  if (found == tensors_.end() || found->name != name)
    return FieldError(FieldOf(path_, std::string(name)), "", "no such tensor; the weights are of another model",
                      absl::StatusCode::kNotFound);
  return &*found;
}

absl::StatusOr<std::string_view> SafetensorsReader::Bytes(std::string_view name) const {
  ASSIGN_OR_RETURN(const TensorInfo* info, Find(name));
  return files_.at(info->file).bytes().substr(info->offset, info->bytes);
}

absl::Status SafetensorsReader::Read(std::string_view name, const Rectangle& part, void* out) const {
  ASSIGN_OR_RETURN(const TensorInfo* info, Find(name));
  RETURN_IF_ERROR(CheckInside(FieldOf(info->file, info->name), info->shape, part));
  const char* data = files_.at(info->file).bytes().data() + info->offset;
  CopyRectangle(data, WholeOf(info->shape), static_cast<char*>(out), part, part, DTypeBytes(info->dtype));
  return absl::OkStatus();
}

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
