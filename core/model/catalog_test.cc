#include "core/model/catalog.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "core/model/hf_config.h"
#include "proto/errors.h"

namespace legoai::model {
namespace {

using google::protobuf::util::MessageDifferencer;

TEST(Catalog, NamesAreUnique) {
  std::set<std::string> names;
  for (const v1::Model& model : Catalog()) EXPECT_TRUE(names.insert(model.name()).second) << model.name();
  EXPECT_EQ(names.size(), 29);
}

TEST(Catalog, EveryModelIsOneThatConfigJsonCanSay) {
  for (const v1::Model& model : Catalog()) {
    auto back = ParseHfConfig(WriteHfConfig(model), model.name());
    ASSERT_TRUE(back.ok()) << back.status();
    back->clear_config_json();
    EXPECT_TRUE(MessageDifferencer::Equals(model, *back)) << model.DebugString() << back->DebugString();
  }
}

TEST(ResolveModel, TakesNamesAndPaths) {
  EXPECT_EQ(ResolveModel("llama3-8b")->hidden_size(), 4096);
  const std::string folder = testing::TempDir() + "/my-model";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << WriteHfConfig(*ResolveModel("gpt2"));
  EXPECT_EQ(ResolveModel(folder)->name(), "my-model");
  EXPECT_EQ(ResolveModel(folder + "/config.json")->hidden_size(), 768);
  std::filesystem::remove_all(folder);
}

TEST(ResolveModel, NamesOfTheHubAreAliases) {
  std::set<std::string> names;
  for (const std::string& name : ModelNames()) EXPECT_TRUE(names.insert(name).second) << name;
  for (const v1::Model& model : Catalog()) {
    ASSERT_FALSE(HubNames(model.name()).empty()) << model.name();
    for (const std::string& hub : HubNames(model.name())) {
      EXPECT_EQ(names.count(hub), 1) << hub;
      const auto resolved = ResolveModel(hub);
      ASSERT_TRUE(resolved.ok()) << resolved.status();
      EXPECT_TRUE(MessageDifferencer::Equals(*resolved, model)) << hub;
    }
  }
  EXPECT_EQ(ResolveModel("meta-llama/Llama-3.1-8B")->name(), "llama3-8b");
  EXPECT_EQ(ResolveModel("openai-community/gpt2-xl")->num_hidden_layers(), 48);
  EXPECT_EQ(FindModel("meta-llama/Llama-3.1-9B"), nullptr);
  EXPECT_TRUE(HubNames("mine").empty());
}

TEST(ResolveModel, ACloneOfTheHubIsReadAsItIs) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::string root = testing::TempDir() + "/clones";
  std::filesystem::create_directories(root + "/openai-community/gpt2");
  std::ofstream(root + "/openai-community/gpt2/config.json") << WriteHfConfig(*ResolveModel("gpt2-medium"));
  std::filesystem::current_path(root);
  EXPECT_EQ(ResolveModel("openai-community/gpt2")->num_hidden_layers(), 24);
  EXPECT_EQ(ResolveModel("gpt2")->num_hidden_layers(), 12);
  std::filesystem::current_path(before);
  std::filesystem::remove_all(root);
}

TEST(ResolveModel, NamesTheNearest) {
  const auto of_hub = GetFieldViolation(ResolveModel("meta-lama/Llama-3.1-70b").status());
  EXPECT_NE(of_hub->remedy().find("the nearest name is meta-llama/Llama-3.1-70B"), std::string::npos) << of_hub->remedy();

  const auto model = ResolveModel("llama3-8");
  EXPECT_EQ(model.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GetFieldViolation(model.status())->value(), "llama3-8");
  EXPECT_NE(GetFieldViolation(model.status())->remedy().find("llama3-8b"), std::string::npos);
  EXPECT_FALSE(ResolveModel("").ok());
  EXPECT_EQ(ResolveModel(testing::TempDir()).status().code(), absl::StatusCode::kNotFound) << "a folder without config.json";
}

}  // namespace
}  // namespace legoai::model
