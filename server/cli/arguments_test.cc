#include "server/cli/arguments.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

#include "proto/errors.h"

namespace legoai::cli {
namespace {

CommandSpec Spec() {
  CommandSpec spec;
  spec.name = "try";
  spec.summary = "Tries.";
  spec.positional = "FILE";
  spec.most_positional = 1;
  spec.options = {{"count", "N", "how many"}, {"constraint", "K=V", "binds", true}, {"fresh", "", "anew"}};
  spec.recipe_keys = true;
  spec.example = "lego try file";
  return spec;
}

Arguments Parsed(const std::vector<std::string>& words) {
  auto arguments = Arguments::Parse(Spec(), words);
  EXPECT_TRUE(arguments.ok()) << arguments.status();
  return *arguments;
}

std::string ErrorOf(const CommandSpec& spec, const std::vector<std::string>& words) {
  const auto arguments = Arguments::Parse(spec, words);
  EXPECT_FALSE(arguments.ok());
  EXPECT_TRUE(GetFieldViolation(arguments.status()).has_value());
  return std::string(arguments.status().message());
}

TEST(Arguments, BothFormsOfAValueMeanTheSame) {
  for (const auto& words : {std::vector<std::string>{"--count", "3"}, {"--count=3"}}) {
    EXPECT_EQ(Parsed(words).Integer("count", 1)->value(), 3);
  }
  EXPECT_FALSE(Parsed({}).Integer("count", 1)->has_value());
}

TEST(Arguments, RepeatedOptionsKeepTheirOrderAndEqualsSigns) {
  EXPECT_EQ(Parsed({"--constraint", "a=1", "--constraint=b=2"}).All("constraint"), (std::vector<std::string>{"a=1", "b=2"}));
}

TEST(Arguments, RecipeKeysAreThoseWithAPoint) {
  const Arguments arguments = Parsed({"--training.steps=5", "file", "--optimizer.lr", "1e-3"});
  ASSERT_EQ(arguments.recipe_keys().size(), 2u);
  EXPECT_EQ(arguments.recipe_keys()[0], (std::pair<std::string, std::string>("training.steps", "5")));
  EXPECT_EQ(arguments.recipe_keys()[1].second, "1e-3");
  EXPECT_EQ(arguments.positional(), std::vector<std::string>{"file"});
}

TEST(Arguments, NegativeValuesAndWordsAfterTwoDashes) {
  EXPECT_EQ(Parsed({"--training.global_batch_size", "-1"}).recipe_keys()[0].second, "-1");
  EXPECT_EQ(Parsed({"--", "--count"}).positional(), std::vector<std::string>{"--count"});
}

TEST(Arguments, FormatOfTheOutput) {
  EXPECT_EQ(Parsed({}).format(), Format::kTable);
  EXPECT_EQ(Parsed({"-o", "json"}).format(), Format::kJson);
  EXPECT_EQ(Parsed({"--output=yaml"}).format(), Format::kYaml);
  EXPECT_EQ(Parsed({"-oyaml"}).format(), Format::kYaml);
  EXPECT_EQ(Parsed({"-o=json"}).format(), Format::kJson);
  EXPECT_EQ(Parsed({"--", "-ojson"}).positional(), std::vector<std::string>{"-ojson"});
  for (const auto& words :
       {std::vector<std::string>{"-o", "xml"}, {"-oxml"}, {"-o="}, {"-o", "json", "-oyaml", "--output=table"}})
    EXPECT_NE(ErrorOf(Spec(), words).find("--output"), std::string::npos);
  EXPECT_NE(ErrorOf(Spec(), {"-oxml"}).find("table, json or yaml"), std::string::npos);
}

TEST(Arguments, TheOutputMayStandBeforeTheCommand) {
  const std::vector<std::string> rest = {"list", "-o", "json", "--limit", "3"};
  EXPECT_EQ(CommandFirst({"-o", "json", "list", "--limit", "3"}), rest);
  EXPECT_EQ(CommandFirst({"list", "-o", "json", "--limit", "3"}), rest);
  for (const char* one : {"-ojson", "-o=json", "--output=json"})
    EXPECT_EQ(CommandFirst({one, "list"}), (std::vector<std::string>{"list", one}));
  EXPECT_EQ(CommandFirst({"--output", "json", "--output", "yaml", "list"}),
            (std::vector<std::string>{"list", "--output", "json", "--output", "yaml"}));
  EXPECT_EQ(CommandFirst({"--help"}), std::vector<std::string>{"--help"});
  for (const auto& none : {std::vector<std::string>{}, {"-o"}, {"-o", "json"}, {"-ojson"}})
    EXPECT_TRUE(CommandFirst(none).empty());
}

TEST(Arguments, WhatIsWrongIsNamed) {
  EXPECT_NE(ErrorOf(Spec(), {"--cuont", "3"}).find("did you mean --count?"), std::string::npos);
  EXPECT_NE(ErrorOf(Spec(), {"-x"}).find("unknown option"), std::string::npos);
  EXPECT_NE(ErrorOf(Spec(), {"--count"}).find("needs a value"), std::string::npos);
  EXPECT_NE(ErrorOf(Spec(), {"--fresh=1"}).find("takes no value"), std::string::npos);
  EXPECT_NE(ErrorOf(Spec(), {"--count=1", "--count=2"}).find("given twice"), std::string::npos);
  EXPECT_EQ(ErrorOf(Spec(), {"one", "two"}),
            "FILE = two: is one word too many: it takes one FILE at a time. Example: lego try file");
  EXPECT_EQ(ErrorOf(Spec(), {"--json"}), "--json: unknown option; write -o json");
  CommandSpec spec = Spec();
  spec.recipe_keys = false;
  EXPECT_NE(ErrorOf(spec, {"--training.steps=5"}).find("unknown option"), std::string::npos);
  spec.least_positional = 1;
  EXPECT_NE(ErrorOf(spec, {}).find("FILE: is needed"), std::string::npos);
  spec.least_positional = 0;
  spec.options[0].required = true;
  EXPECT_NE(ErrorOf(spec, {}).find("--count: is needed"), std::string::npos);
  EXPECT_TRUE(Arguments::Parse(spec, {"--help"})->help());
}

TEST(Arguments, NumbersAreChecked) {
  for (const char* text : {"x", "3x", "0", "-4", "1.5", "99999999999999999999"}) {
    const auto value = Parsed({std::string("--count=") + text}).Integer("count", 1);
    EXPECT_FALSE(value.ok()) << text;
    EXPECT_EQ(GetFieldViolation(value.status())->value(), text);
  }
  const auto remedy = [](const std::string& text, int64_t most = INT64_MAX) {
    return GetFieldViolation(Parsed({"--count=" + text}).Integer("count", 1, most).status())->remedy();
  };
  EXPECT_EQ(remedy("9223372036854775808"), "is too large: must lie between 1 and 9223372036854775807");
  EXPECT_EQ(remedy(std::string(1000, '9')), "is too large: must lie between 1 and 9223372036854775807");
  EXPECT_EQ(remedy("11", 10), "is too large: must lie between 1 and 10");
  EXPECT_EQ(remedy("-99999999999999999999"), "must be a whole number of at least 1");
  EXPECT_FALSE(Parsed({"--count=nan"}).Real("count", 0).ok());
  EXPECT_FALSE(Parsed({"--count=-1"}).Real("count", 0).ok());
  EXPECT_EQ(Parsed({"--count=2.5"}).Real("count", 0)->value(), 2.5);
}

TEST(HelpText, HasEveryOptionAndTheExample) {
  const std::string text = HelpText(Spec());
  for (const char* part :
       {"Tries.", "usage: lego try [FILE]", "--count N", "--constraint K=V", "--output", "--SECTION.KEY", "lego try file"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

TEST(ReadBytes, UnitsAreBinary) {
  EXPECT_EQ(ReadBytes("4GiB", 0), 4.0 * (int64_t{1} << 30));
  EXPECT_EQ(ReadBytes("512 MiB", 0), 512.0 * (1 << 20));
  EXPECT_EQ(ReadBytes("1.5kib", 0), 1536);
  EXPECT_EQ(ReadBytes("2TiB", 0), 2.0 * (int64_t{1} << 40));
  EXPECT_EQ(ReadBytes("17", 0), 17);
  EXPECT_EQ(ReadBytes("17 B", 0), 17);
  EXPECT_EQ(ReadBytes("1.5e9", 0), 1.5e9);
  EXPECT_EQ(ReadBytes("10%", 80), 8);
  EXPECT_EQ(ReadBytes("12.5 %", 80), 10);
}

TEST(ReadBytes, OtherTextIsNone) {
  for (const char* text : {"", "GiB", "%", "4GB4", "-1GiB", "+1", "inf", "nan", "1e400", "0x10", "4 4", "infGiB", "4GB"}) {
    EXPECT_EQ(ReadBytes(text, 80), std::nullopt) << text;
  }
}

TEST(ReadBytes, WholeNumbersComeBack) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    const int64_t bytes = static_cast<int64_t>(random() >> 12);
    EXPECT_EQ(ReadBytes(std::to_string(bytes), 0), static_cast<double>(bytes));
  }
}

}  // namespace
}  // namespace legoai::cli
