// Weights: every tensor of a file that is accepted lies in it whole, and what is read of it, written anew, is read as the same.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/tensor_layout.h"
#include "tests/fuzz/fuzz.h"

namespace legoai::fuzz {
namespace {

using checkpoint::SafetensorsReader;

// Everything that a reader gives, read to the last byte.
std::vector<std::string> Contents(const SafetensorsReader& reader) {
  std::vector<std::string> contents;
  for (const auto& tensor : reader.tensors()) {
    std::string data(static_cast<size_t>(tensor.bytes), '\0');
    checkpoint::Rectangle whole{std::vector<int64_t>(tensor.shape.size(), 0), tensor.shape};
    EXPECT_TRUE(reader.Read(tensor.name, whole, data.data()).ok()) << tensor.name;
    const auto bytes = reader.Bytes(tensor.name);
    EXPECT_TRUE(bytes.ok() && *bytes == data) << tensor.name;
    std::string text = tensor.name + " " + std::to_string(tensor.dtype);
    for (const int64_t size : tensor.shape) text += " " + std::to_string(size);
    contents.push_back(text + ":" + data);
  }
  return contents;
}

void ExpectSameWhenWritten(const SafetensorsReader& reader) {
  const std::string path = testing::TempDir() + "/again.safetensors";
  std::vector<checkpoint::TensorSpec> specs;
  for (const auto& tensor : reader.tensors()) specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  auto writer = checkpoint::SafetensorsWriter::Create(path, specs);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const auto& tensor : reader.tensors()) {
    const auto bytes = reader.Bytes(tensor.name);
    ASSERT_TRUE(writer->Write(tensor.name, bytes->data(), tensor.bytes).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  const auto again = SafetensorsReader::Open(path);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(Contents(*again) == Contents(reader));
}

absl::Status ParseFile(const std::string& bytes) {
  const auto reader = SafetensorsReader::Open(WriteInput("input.safetensors", bytes));
  if (!reader.ok()) return reader.status();
  Contents(*reader);
  ExpectSameWhenWritten(*reader);
  return absl::OkStatus();
}

// The index lies beside one good file.
absl::Status ParseIndex(const std::string& bytes) {
  std::error_code there;
  const std::string index = WriteInput("folder/model.safetensors.index.json", bytes);
  std::filesystem::copy_file("tests/fuzz/corpus/safetensors/types.safetensors", testing::TempDir() + "/folder/a.safetensors",
                             there);
  const auto reader = SafetensorsReader::Open(testing::TempDir() + "/folder");
  if (!reader.ok()) return reader.status();
  Contents(*reader);
  return absl::OkStatus();
}

TEST(Fuzz, Safetensors) {
  Fuzz({"safetensors", JsonWords("dtype|shape|data_offsets|__metadata__|F32|BF16|F64|I64|BOOL|F8_E4M3", "[0,0]"), ParseFile});
}

TEST(Fuzz, SafetensorsIndex) {
  Fuzz({"safetensors_index", JsonWords("weight_map|metadata|a.safetensors|..|/|../a.safetensors", "\"\""), ParseIndex});
}

}  // namespace
}  // namespace legoai::fuzz
