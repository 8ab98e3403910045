// One parser under thousands of damaged files. A crash, a sanitizer's finding and a failed expectation each leave the input
// behind, to be mended and kept in the corpus.
//
// TEST_RANDOM_SEED gives the seed (random without, and printed), LEGOAI_FUZZ_MUTANTS how many mutants (3,000), and
// LEGOAI_FUZZ_INPUT one file that is tried instead of all others. tests/fuzz/run has libFuzzer draw the mutants. Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/fuzz/mutate.h"

namespace legoai::fuzz {

struct Target {
  std::string corpus;               // a folder of tests/fuzz/corpus
  std::vector<std::string> tokens;  // words of the format, for the mutator (Words() of mutate.h)
  // Parses, and holds what is accepted against what it means by EXPECT_... What it gives is OK, or the parser's error.
  std::function<absl::Status(const std::string& bytes)> parse;
};

// The words of JSON, `names` in quotes, and `others`; both with bars between them.
std::vector<std::string> JsonWords(const std::string& names, const std::string& others = "");

// Tries the corpus and its mutants. Every error must have words, some inputs must be accepted and some refused, and memory must
// stay within a gigabyte.
void Fuzz(const Target& target);

// A file of these bytes in the test's folder, for parsers that take a path.
std::string WriteInput(const std::string& name, const std::string& bytes);

}  // namespace legoai::fuzz
