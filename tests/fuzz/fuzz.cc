#include "tests/fuzz/fuzz.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

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
