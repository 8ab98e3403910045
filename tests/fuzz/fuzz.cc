#include "tests/fuzz/fuzz.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_format.h"
#include "proto/read_file.h"

// A length that lies must not be believed: no allocation of more than 256 MB for inputs of 64 KiB.
extern "C" const char* __asan_default_options();
const char* __asan_default_options() { return "max_allocation_size_mb=256:allocator_may_return_null=0:quarantine_size_mb=16"; }

namespace legoai::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostResidentKilobytes = 1 << 20;

std::string Variable(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

std::string Read(const std::string& path) {
  auto text = ReadFile(path);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.value_or("");
}

int64_t PeakKilobytes() {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Tries inputs one by one.
class Run {
 public:
  explicit Run(const Target& target) : target_(target) {
    kept_ = Variable("TEST_UNDECLARED_OUTPUTS_DIR", testing::TempDir()) + "/" + target.corpus + "-input";
  }
  ~Run() { fs::remove(kept_, ignored_); }

  // False: an expectation failed, and the input is left behind.
  bool Try(const std::string& bytes, const std::string& what) {
    std::ofstream(kept_, std::ios::binary | std::ios::trunc) << bytes;  // for who looks after a crash
    const absl::Status status = target_.parse(bytes);
    EXPECT_TRUE(status.ok() || !status.message().empty()) << "an error without words";
    ++(status.ok() ? accepted_ : refused_);
    if (!testing::Test::HasFailure()) return true;
    const std::string failed = kept_ + "-failed";
    fs::rename(kept_, failed, ignored_);
    ADD_FAILURE() << what << " is at fault: " << failed << "\n" << status;
    return false;
  }

  int accepted() const { return accepted_; }
  int refused() const { return refused_; }

 private:
  const Target& target_;
  std::string kept_;
  std::error_code ignored_;
  int accepted_ = 0, refused_ = 0;
};

}  // namespace

std::vector<std::string> JsonWords(const std::string& names, const std::string& others) {
  std::vector<std::string> words = Words("{|}|[|]|:|,|\"|{}|[]|null|true|false|-|\\u0000|\\ud800|\xff|" + others);
  for (const std::string& name : Words(names)) words.push_back("\"" + name + "\"");
  return words;
}

std::string WriteInput(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + "/" + name;
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return path;
}

#ifdef LEGOAI_LIBFUZZER
// Of compiler-rt (lib/fuzzer/FuzzerDriver.cpp); no header has it.
extern "C" int LLVMFuzzerRunDriver(int* argc, char*** argv, int (*callback)(const uint8_t* data, size_t size));

namespace {

const Target* tried = nullptr;

int TryOne(const uint8_t* data, size_t size) {
  const absl::Status status = tried->parse(std::string(reinterpret_cast<const char*>(data), size));
  EXPECT_TRUE(status.ok() || !status.message().empty()) << "an error without words";
  if (testing::Test::HasFailure()) std::abort();  // libFuzzer keeps the input
  return 0;
}

// A line for each of the target's words.
std::string WriteDictionary(const Target& target) {
  std::string lines;
  for (const std::string& word : target.tokens) {
    lines += '"';
    for (const unsigned char byte : word) lines += absl::StrFormat("\\x%02x", byte);
    lines += "\"\n";
  }
  return WriteInput(target.corpus + ".dict", lines);
}

// It keeps mutants that reach new code, and changes those, for LEGOAI_FUZZ_SECONDS. The process ends here: with 0 if no input was at
// fault, otherwise with another code, what was found on stderr, and the input in LEGOAI_FUZZ_FOUND, where the kept ones are.
[[noreturn]] void RunLibFuzzer(const Target& target) {
  tried = &target;
  const std::string found = Variable("LEGOAI_FUZZ_FOUND", testing::TempDir()) + "/" + target.corpus;
  fs::create_directories(found);
  std::vector<std::string> words = {"libfuzzer",
                                    "-max_total_time=" + Variable("LEGOAI_FUZZ_SECONDS", "60"),
                                    "-dict=" + WriteDictionary(target),
                                    "-max_len=65536",
                                    "-timeout=20",
                                    "-rss_limit_mb=1024",
                                    "-malloc_limit_mb=256",
                                    "-artifact_prefix=" + found + "/",
                                    "-print_final_stats=1",
                                    found,
                                    "tests/fuzz/corpus/" + target.corpus};
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  int count = static_cast<int>(words.size());
  char** arguments = pointers.data();
  std::exit(LLVMFuzzerRunDriver(&count, &arguments, TryOne));
}

}  // namespace
#endif

void Fuzz(const Target& target) {
  Run run(target);
  if (const std::string input = Variable("LEGOAI_FUZZ_INPUT", ""); !input.empty()) {
    run.Try(Read(input), input);
    return;
  }
  const auto files = ReadFolder("tests/fuzz/corpus/" + target.corpus);
  ASSERT_TRUE(files.ok()) << files.status();
  std::vector<std::string> corpus;
  for (const std::string& file : *files) {
    corpus.push_back(Read(file));
    if (!run.Try(corpus.back(), file)) return;
  }
  EXPECT_GT(run.accepted(), 0) << "no file of the corpus is valid";
  EXPECT_GT(run.refused(), 0) << "no file of the corpus is broken";
#ifdef LEGOAI_LIBFUZZER
  RunLibFuzzer(target);
#endif
  const uint64_t seed = std::stoull(Variable("TEST_RANDOM_SEED", std::to_string(std::random_device()())));
  const uint64_t mutants = std::stoull(Variable("LEGOAI_FUZZ_MUTANTS", "3000"));
  std::printf("seed %llu, %llu mutants of %zu files\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(mutants), corpus.size());
  for (uint64_t i = 0; i < mutants; ++i) {
    if (!run.Try(Mutate(seed * 1'000'003 + i, corpus, target.tokens), "mutant " + std::to_string(i))) return;
  }
  std::printf("%d accepted, %d refused, %lld MB at the most\n", run.accepted(), run.refused(),
              static_cast<long long>(PeakKilobytes() >> 10));
  EXPECT_LT(PeakKilobytes(), kMostResidentKilobytes);
}

}  // namespace legoai::fuzz
