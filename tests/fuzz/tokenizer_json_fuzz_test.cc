// Hugging Face's tokenizer.json: a vocabulary that is accepted has all bytes and ids that fit, and is written and read as the
// same.
#include <gtest/gtest.h>

#include "core/data/tokenizer_json.h"
#include "tests/fuzz/fuzz.h"

namespace legoai::fuzz {
namespace {

absl::Status Parse(const std::string& text) {
  const auto vocabulary = data::ParseTokenizerJson(text);
  if (!vocabulary.ok()) return vocabulary.status();
  const auto ids = static_cast<int32_t>(vocabulary->tokens.size());
  EXPECT_GE(ids, 256);
  for (const auto& id : {vocabulary->begin, vocabulary->end}) {
    if (!id) continue;
    if (*id < 0 || *id >= ids) return absl::InternalError("an id that is none");
    EXPECT_EQ(vocabulary->tokens[*id].kind, data::Vocabulary::Kind::kSpecial);
  }
  for (const data::Merge& merge : vocabulary->merges.value()) {
    for (const int32_t id : {merge.left, merge.right, merge.made}) {
      EXPECT_TRUE(id >= 0 && id < ids) << id;
    }
  }
  const auto again = data::ParseTokenizerJson(data::WriteTokenizerJson(*vocabulary));
  EXPECT_TRUE(again.ok()) << again.status();
  if (again.ok()) {
    EXPECT_TRUE(*again == *vocabulary);
  }
  return absl::OkStatus();
}

TEST(Fuzz, TokenizerJson) {
  Fuzz({"tokenizer_json",
        {"{",
         "}",
         "[",
         "]",
         ":",
         ",",
         "\"",
         "null",
         "true",
         "false",
         "{}",
         "[]",
         "\\u0000",
         "\\ud800",
         "\"vocab\"",
         "\"merges\"",
         "\"added_tokens\"",
         "\"special\"",
         "\"id\"",
         "\"pre_tokenizer\"",
         "\"use_regex\"",
         "\"ByteLevel\"",
         "\"Split\"",
         "\"Sequence\"",
         "\"single\"",
         "\"SpecialToken\"",
         "\"ignore_merges\"",
         "\"byte_fallback\"",
         "\"Replace\"",
         "\"Prepend\"",
         "\"Metaspace\"",
         "\"NFC\"",
         "\xff",
         "256",
         "-1",
         "1e99"},
        Parse});
}

}  // namespace
}  // namespace legoai::fuzz
