#include "core/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "proto/errors.h"

namespace legoai::checkpoint {
namespace {

constexpr char kReference[] = "core/checkpoint/testdata/";

std::string Path(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
  std::filesystem::create_directories(folder);
  return folder + "/" + name;
}

// A file with this header and this many bytes of data.
std::string Forge(const std::string& name, const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string contents(reinterpret_cast<const char*>(&length), 8);
  EXPECT_TRUE(WriteFile(Path(name), contents + header + std::string(data_bytes, 'x')).ok());
  return Path(name);
}

template <typename T>
std::vector<T> ReadAll(const SafetensorsReader& reader, const std::string& name, const Rectangle& part) {
  std::vector<T> out(Volume(part.sizes));
  EXPECT_EQ(reader.Read(name, part, out.data()), absl::OkStatus());
  return out;
}

template <typename T>
void ExpectCounts(const SafetensorsReader& reader, const std::string& name, v1::DType dtype, const std::vector<int64_t>& shape) {
  SCOPED_TRACE(name);
  const auto info = reader.Find(name).value();
  EXPECT_EQ(info->dtype, dtype);
  EXPECT_EQ(info->shape, shape);
  const std::vector<T> values = ReadAll<T>(reader, name, WholeOf(shape));
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<T>(i));
}

TEST(SafetensorsTest, ReadsWhatThePythonPackageWrote) {
  auto reader = SafetensorsReader::Open(std::string(kReference) + "types.safetensors").value();
  EXPECT_EQ(reader.tensors().size(), 13u);
  ExpectCounts<float>(reader, "z.float32", v1::FLOAT32, {2, 3, 4});
  ExpectCounts<float>(reader, "a.float32", v1::FLOAT32, {5});
  ExpectCounts<double>(reader, "float64", v1::FLOAT64, {3, 1});
  ExpectCounts<int64_t>(reader, "int64", v1::INT64, {7});
  ExpectCounts<int32_t>(reader, "int32", v1::INT32, {2, 2});
  ExpectCounts<int16_t>(reader, "int16", v1::INT16, {3});
  ExpectCounts<int8_t>(reader, "int8", v1::INT8, {3});
  ExpectCounts<uint8_t>(reader, "uint8", v1::UINT8, {5});
  ExpectCounts<float>(reader, "scalar", v1::FLOAT32, {});
  ExpectCounts<float>(reader, "empty", v1::FLOAT32, {0, 4});
  ExpectCounts<float>(reader, "quote\" and \u00fc", v1::FLOAT32, {2});
  EXPECT_EQ(ReadAll<uint8_t>(reader, "bool", WholeOf({3, 3})), (std::vector<uint8_t>{1, 0, 0, 1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(reader.Find("float16").value()->dtype, v1::FLOAT16);
  const std::vector<uint16_t> half = ReadAll<uint16_t>(reader, "float16", {{0, 1}, {1, 3}});
  EXPECT_EQ(half, (std::vector<uint16_t>{0x3c00, 0x4000, 0x4200}));  // 1, 2, 3
}

TEST(SafetensorsTest, ReadsPartsInPlace) {
  auto reader = SafetensorsReader::Open(std::string(kReference) + "types.safetensors").value();
  EXPECT_EQ(ReadAll<float>(reader, "z.float32", {{1, 1, 1}, {1, 2, 2}}), (std::vector<float>{17, 18, 21, 22}));
  EXPECT_EQ(ReadAll<float>(reader, "z.float32", {{0, 2, 0}, {2, 1, 4}}), (std::vector<float>{8, 9, 10, 11, 20, 21, 22, 23}));
  EXPECT_EQ(ReadAll<float>(reader, "z.float32", {{0, 0, 0}, {0, 3, 4}}), std::vector<float>());
  const absl::Status status = reader.Read("z.float32", {{0, 0, 0}, {3, 3, 4}}, nullptr);
  EXPECT_NE(status.message().find("types.safetensors: z.float32"), std::string::npos) << status;
}

// The writer puts the same tensors into the same bytes as the Python package.
TEST(SafetensorsTest, WritesByteForByteWhatThePythonPackageWrites) {
  for (const std::string file : {"types.safetensors", "bfloat16.safetensors"}) {
    auto reader = SafetensorsReader::Open(kReference + file).value();
    std::vector<TensorSpec> specs;
    for (const TensorInfo& info : reader.tensors()) specs.push_back({info.name, info.dtype, info.shape});
    auto writer = SafetensorsWriter::Create(Path(file), specs).value();
    for (size_t i = specs.size(); i-- > 0;) {
      const std::string_view bytes = reader.Bytes(specs[i].name).value();
      ASSERT_TRUE(writer.Write(specs[i].name, bytes.data(), static_cast<int64_t>(bytes.size())).ok());
    }
    EXPECT_FALSE(std::filesystem::exists(Path(file)));
    ASSERT_TRUE(writer.Finish().ok());
    EXPECT_EQ(ReadFile(Path(file)).value(), ReadFile(kReference + file).value());
  }
}

std::vector<TensorSpec> ThreeTensors() { return {{"c", v1::FLOAT32, {2, 4}}, {"a", v1::FLOAT32, {4}}, {"b", v1::BFLOAT16, {3}}}; }

void WriteFolder(const std::string& folder, int64_t max_file_bytes) {
  auto writer = SafetensorsFolderWriter::Create(folder, ThreeTensors(), max_file_bytes).value();
  const float floats[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  ASSERT_TRUE(writer.Write("a", floats, 16).ok());
  ASSERT_TRUE(writer.Write("b", floats, 6).ok());
  ASSERT_TRUE(writer.Write("c", floats, 32).ok());
  ASSERT_EQ(writer.Finish(), absl::OkStatus());
}

TEST(SafetensorsTest, FolderOfOneFileOrSeveral) {
  for (const auto& [max_file_bytes, files] : std::map<int64_t, size_t>{{1 << 20, 1}, {40, 3}, {1, 4}}) {
    const std::string folder = Path(std::to_string(max_file_bytes));
    WriteFolder(folder, max_file_bytes);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), files);
    auto reader = SafetensorsReader::Open(folder).value();
    ASSERT_EQ(reader.tensors().size(), 3u);
    EXPECT_EQ(reader.tensors()[1].name, "b");
    EXPECT_EQ(ReadAll<float>(reader, "c", {{1, 1}, {1, 2}}), (std::vector<float>{5, 6}));
    EXPECT_EQ(ReadAll<float>(reader, "a", {{2}, {2}}), (std::vector<float>{2, 3}));
  }
}

TEST(SafetensorsTest, AnExportReplacesOneOfTheOtherKind) {
  for (int64_t max_file_bytes : {int64_t{1} << 20, int64_t{40}, int64_t{1} << 20}) {
    WriteFolder(Path("folder"), max_file_bytes);
    auto reader = SafetensorsReader::Open(Path("folder")).value();
    EXPECT_EQ(reader.Find("a").value()->file.find("-of-00002") != std::string::npos, max_file_bytes == 40);
  }
}

TEST(SafetensorsTest, WriterRefusesWhatWasNotAnnouncedAndWhatIsMissing) {
  auto writer = SafetensorsWriter::Create(Path("model.safetensors"), ThreeTensors()).value();
  const float floats[8] = {};
  EXPECT_FALSE(writer.Write("d", floats, 4).ok());
  EXPECT_FALSE(writer.Write("a", floats, 12).ok());
  ASSERT_TRUE(writer.Write("a", floats, 16).ok());
  const absl::Status status = writer.Finish();
  EXPECT_NE(status.message().find("model.safetensors: b"), std::string::npos) << status;
  EXPECT_FALSE(std::filesystem::exists(Path("model.safetensors")));
  EXPECT_FALSE(SafetensorsWriter::Create(Path("twice"), {{"a", v1::FLOAT32, {1}}, {"a", v1::BFLOAT16, {1}}}).ok());
  EXPECT_FALSE(SafetensorsWriter::Create(Path("none"), {{"a", v1::DTYPE_UNSPECIFIED, {1}}}).ok());
}

// What is wrong, the header or the bytes, and words that the message must have.
TEST(SafetensorsTest, BadFilesAreRefusedByFileAndTensor) {
  struct Case {
    std::string header;
    size_t data_bytes;
    std::vector<std::string> words;
  };
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  const Case cases[] = {
      {"{" + a, 8, {"JSON"}},
      {"[]", 0, {"JSON"}},
      {"{" + a + "}", 7, {": a", "beyond"}},
      {"{" + a + "}", 9, {"belong to no tensor"}},
      {"{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}})", 10, {": b", "overlap"}},
      {"{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}})", 10, {": b", "gap"}},
      {R"({"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}})", 8, {": a = F8_E4M3", "unknown element type"}},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, {": a", "do not match"}},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0, {": a", "do not match"}},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, {": a", "no valid shape"}},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, {": a", "no valid shape"}},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", 8, {": a", "no valid shape"}},
      {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, {": a", "no dtype"}},
      {R"({"a":7})", 0, {": a", "no dtype"}},
      {R"({"a\u001b[2J":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, {": a\\u001b[2J", "control characters"}},
      {R"({"a\u0000":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8, {": a\\u0000", "control characters"}},
  };
  for (const Case& c : cases) {
    const auto reader = SafetensorsReader::Open(Forge("bad.safetensors", c.header, c.data_bytes));
    ASSERT_FALSE(reader.ok()) << c.header;
    EXPECT_NE(reader.status().message().find("bad.safetensors"), std::string::npos) << reader.status();
    for (const std::string& word : c.words) EXPECT_NE(reader.status().message().find(word), std::string::npos) << reader.status();
    EXPECT_TRUE(GetFieldViolation(reader.status()).has_value());
  }
}

// Every prefix of a good file is refused.
TEST(SafetensorsTest, TornFiles) {
  WriteFolder(Path("whole"), 1 << 20);
  const std::string whole = ReadFile(Path("whole/model.safetensors")).value();
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_TRUE(WriteFile(Path("torn.safetensors"), whole.substr(0, size)).ok());
    EXPECT_FALSE(SafetensorsReader::Open(Path("torn.safetensors")).ok()) << size;
  }
  ASSERT_TRUE(WriteFile(Path("torn.safetensors"), whole).ok());
  EXPECT_TRUE(SafetensorsReader::Open(Path("torn.safetensors")).ok());
}

void ExpectOpenError(const std::string& path, const std::vector<std::string>& words) {
  const auto reader = SafetensorsReader::Open(path);
  ASSERT_FALSE(reader.ok());
  for (const std::string& word : words) EXPECT_NE(reader.status().message().find(word), std::string::npos) << reader.status();
}

TEST(SafetensorsTest, MissingFilesAndTensors) {
  ExpectOpenError("/no/such/model.safetensors", {"/no/such/model.safetensors"});
  ExpectOpenError(Path(""), {"holds neither"});
  WriteFolder(Path("folder"), 40);
  auto reader = SafetensorsReader::Open(Path("folder"));
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(reader->Find("lm_head.weight").status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(reader->Find("lm_head.weight").status().message().find("lm_head.weight"), std::string::npos);

  const std::string index = Path("folder/model.safetensors.index.json"), second = "model-00002-of-00002.safetensors";
  ASSERT_TRUE(WriteFile(index, R"({"weight_map": {"d": ")" + second + "\"}}").ok());
  ExpectOpenError(Path("folder"), {second + ": d", "missing"});
  ASSERT_TRUE(WriteFile(index, R"({"weight_map": {"d": "../x"}})").ok());
  ExpectOpenError(Path("folder"), {"index.json: d = ../x"});
  ASSERT_TRUE(WriteFile(index, R"({"weight_map": {"d": "x\u0000y"}})").ok());
  ExpectOpenError(Path("folder"), {"index.json: d = x\\u0000y"});
  ASSERT_TRUE(WriteFile(index, "{}").ok());
  ExpectOpenError(Path("folder"), {"weight_map"});
  ASSERT_TRUE(WriteFile(index, R"({"weight_map": {"a": ")" + second + "\"}}").ok());
  std::filesystem::remove(Path("folder/" + second));
  ExpectOpenError(Path("folder"), {second, "cannot open"});
}

}  // namespace
}  // namespace legoai::checkpoint
