#include "core/recipe/recipe.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <limits>

#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/legoai/v1/options.pb.h"
#include "proto/text.h"

namespace legoai::parallel {
namespace {

using google::protobuf::util::MessageDifferencer;

TEST(Defaults, AreWhatTheSchemaSays) {
  const v1::Recipe& recipe = DefaultRecipe();
  EXPECT_EQ(recipe.training().local_batch_size(), 8);
  EXPECT_EQ(recipe.training().mixed_precision_param(), v1::BFLOAT16);
  EXPECT_EQ(recipe.parallelism().data_parallel_shard_degree(), -1);
  EXPECT_EQ(recipe.parallelism().pipeline_parallel_schedule(), v1::ONE_F_ONE_B);
  EXPECT_EQ(recipe.optimizer().lr(), 8e-4);
  EXPECT_EQ(recipe.model().tokenizer_path(), "byte");
  EXPECT_FALSE(recipe.model().has_name()) << "has no default";
  EXPECT_TRUE(recipe.checkpoint().has_enable_checkpoint()) << "false is a value";
  EXPECT_TRUE(CheckRecipe(recipe).ok()) << CheckRecipe(recipe);
  EXPECT_TRUE(CheckRecipe(v1::Recipe()).ok());
}

TEST(Defaults, FillOnlyWhatIsUnset) {
  v1::Recipe recipe;
  recipe.mutable_training()->set_max_norm(0);
  recipe.mutable_optimizer()->set_name("other");
  FillDefaults(&recipe);
  EXPECT_EQ(recipe.training().max_norm(), 0);
  EXPECT_EQ(recipe.optimizer().name(), "other");
  EXPECT_EQ(recipe.training().seq_len(), 2048);
}

TEST(ParseRecipe, FileThenOverridesThenDefaults) {
  const auto recipe = ParseRecipe("[training]\nsteps = 5\nseq_len = 64\n", {{"training.seq_len", "128"}});
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  EXPECT_EQ(recipe->training().steps(), 5);
  EXPECT_EQ(recipe->training().seq_len(), 128);
  EXPECT_EQ(recipe->training().local_batch_size(), 8);
}

TEST(ParseRecipe, AnOverrideCanMendTheFile) {
  EXPECT_FALSE(ParseRecipe("[training]\nsteps = 0\n").ok());
  EXPECT_TRUE(ParseRecipe("[training]\nsteps = 0\n", {{"training.steps", "1"}}).ok());
}

TEST(RecipeToToml, IsReadBack) {
  const auto recipe = ParseRecipe("[model]\nname = \"llama3-8b\"\n[parallelism]\npipeline_parallel_schedule = \"GPipe\"\n");
  ASSERT_TRUE(recipe.ok());
  const auto back = ParseRecipe(RecipeToToml(*recipe));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_TRUE(MessageDifferencer::Equals(*recipe, *back));
  v1::Recipe small;
  small.mutable_training()->set_steps(3);
  EXPECT_EQ(RecipeToToml(small), "[training]\nsteps = 3\n");
}

// What is at fault after `toml`: "field|value|remedy".
std::string Refusal(const std::string& toml) {
  const auto recipe = ParseRecipe(toml);
  const auto violation = GetFieldViolation(recipe.status());
  return violation ? violation->field() + "|" + violation->value() + "|" + violation->remedy() : "accepted";
}

TEST(CheckRecipe, RefusesWhatIsNotBuiltYetByName) {
  EXPECT_EQ(Refusal("[parallelism]\nexpert_parallel_degree = 2"),
            "parallelism.expert_parallel_degree|2|is not supported yet: leave it at 1");
  EXPECT_EQ(Refusal("[parallelism]\nexpert_parallel_degree = 1"), "accepted");
  EXPECT_EQ(Refusal("[parallelism]\nexpert_parallel_degree = 4"),
            "parallelism.expert_parallel_degree|4|is not supported yet: leave it at 1");
  EXPECT_EQ(Refusal("[parallelism]\nsequence_parallel = false"), "accepted");
  EXPECT_EQ(Refusal("[parallelism]\nsequence_parallel = false\nsequence_parallel_gather_in_backward = true"),
            "parallelism.sequence_parallel_gather_in_backward|true|has nothing to gather with sequence_parallel = false, where "
            "each rank has all tokens: leave one of them out");
  EXPECT_EQ(Refusal("[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"op\""), "accepted");
  EXPECT_EQ(Refusal("[activation_checkpoint]\nselective_ac_policy = \"* aten::mm all\""),
            "activation_checkpoint.selective_ac_policy|* aten::mm all|needs selective_ac_option = \"policy\"");
  const std::string policy = "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"policy\"\n";
  EXPECT_EQ(Refusal(policy),
            "activation_checkpoint.selective_ac_policy||must have rules of the form [BLOCKS:]MODULE OPERATOR WHICH, "
            "separated by semicolons");
  EXPECT_EQ(Refusal(policy + "selective_ac_policy = \"mlp.* aten::mm odd\""), "accepted");
  EXPECT_EQ(Refusal("[training]\nmixed_precision_reduce = \"bfloat16\""),
            "training.mixed_precision_reduce|bfloat16|is not supported yet: gradients are reduced in float32");
  EXPECT_EQ(Refusal("[training]\nmixed_precision_param = \"float16\"\ninitial_loss_scale = 1024\nloss_scale_growth_interval = 9"),
            "accepted");
  EXPECT_EQ(Refusal("[training]\ninitial_loss_scale = 1024"),
            "training.initial_loss_scale|1024.0|is a key of mixed_precision_param = \"float16\": remove it");
  EXPECT_EQ(Refusal("[training]\nmixed_precision_param = \"float16\"\ndtype = \"bfloat16\""),
            "training.dtype|bfloat16|cannot go with mixed_precision_param = \"float16\": use \"float32\", or \"float16\" "
            "with optimizer.master_weights = true");
  EXPECT_EQ(Refusal("[training]\ndtype = \"float16\""),
            "training.dtype|float16|would lose small updates: use \"bfloat16\", \"float32\", or optimizer.master_weights = true "
            "with it");
  EXPECT_EQ(Refusal("[optimizer]\nstochastic_rounding = true"),
            "optimizer.stochastic_rounding|true|needs training.dtype = \"bfloat16\": nothing is rounded in float32");
  EXPECT_EQ(Refusal("[training]\ndtype = \"bfloat16\"\n[optimizer]\nstochastic_rounding = true"), "accepted");
}

TEST(CheckRecipe, MastersGoWithParametersOf16Bits) {
  const std::string masters = "[optimizer]\nmaster_weights = true\n";
  EXPECT_EQ(Refusal("[training]\ndtype = \"bfloat16\"\n" + masters), "accepted");
  EXPECT_EQ(Refusal("[training]\ndtype = \"bfloat16\"\nmixed_precision_param = \"float32\"\n" + masters), "accepted");
  EXPECT_EQ(Refusal("[training]\ndtype = \"float16\"\nmixed_precision_param = \"float16\"\n" + masters), "accepted");
  EXPECT_EQ(Refusal("[training]\ndtype = \"float16\"\n" + masters),
            "training.dtype|float16|needs mixed_precision_param = \"float16\", whose loss is scaled: use \"bfloat16\"");
  EXPECT_EQ(Refusal(masters),
            "optimizer.master_weights|true|needs training.dtype = \"bfloat16\", or \"float16\": parameters in float32 are "
            "masters themselves");
  EXPECT_EQ(Refusal("[training]\ndtype = \"bfloat16\"\n" + masters + "stochastic_rounding = true"),
            "optimizer.stochastic_rounding|true|cannot go with optimizer.master_weights = true: masters in float32 lose no "
            "update. Remove one of the two");
}

TEST(RecomputedBlocks, AreEveryKthOfTheModel) {
  v1::ActivationCheckpoint section = DefaultRecipe().activation_checkpoint();
  EXPECT_EQ(RecomputedBlocks(section, 0, 7), 0);
  section.set_mode(v1::AC_FULL);
  EXPECT_EQ(RecomputedBlocks(section, 3, 7), 4);
  section.set_mode(v1::AC_SELECTIVE);
  EXPECT_EQ(RecomputedBlocks(section, 0, 7), 3) << "blocks 1, 3 and 5";
  section.set_selective_ac_option("op");
  EXPECT_EQ(RecomputedBlocks(section, 2, 7), 5) << "all, in part";
  section.set_selective_ac_option("policy");
  section.set_selective_ac_policy("0-3:* aten::mm all; 4-5:* * all");
  EXPECT_EQ(RecomputedBlocks(section, 2, 7), 3) << "2, 3 and 6";
  section.set_selective_ac_option("3");
  for (int64_t first = 0; first < 9; ++first) {
    int64_t counted = 0;
    for (int64_t last = first; last < 12; ++last) {
      EXPECT_EQ(RecomputedBlocks(section, first, last), counted) << first << " " << last;
      counted += (last + 1) % 3 == 0;
    }
  }
}

TEST(CheckRecipe, RefusesBucketsThatNothingAsksFor) {
  v1::Recipe recipe;
  recipe.mutable_compile()->add_fsdp_buckets()->add_modules("layers.0");
  EXPECT_EQ(GetFieldViolation(CheckRecipe(recipe))->field(), "compile.fsdp_buckets");
  recipe.mutable_compile()->set_fsdp_bucketing(v1::BUCKET_BY_MODULES);
  recipe.mutable_compile()->add_fsdp_backward_buckets()->add_modules("layers.0");
  EXPECT_TRUE(CheckRecipe(recipe).ok()) << CheckRecipe(recipe);
  recipe.mutable_compile()->clear_fsdp_buckets();
  EXPECT_EQ(GetFieldViolation(CheckRecipe(recipe))->field(), "compile.fsdp_backward_buckets");
}

TEST(CheckRecipe, AutoCheckpointingHasABudgetAndNothingOfSelective) {
  const auto faulty = [](auto change) {
    v1::Recipe recipe;
    recipe.mutable_activation_checkpoint()->set_mode(v1::AC_AUTO);
    change(recipe.mutable_activation_checkpoint());
    const auto fault = GetFieldViolation(CheckRecipe(recipe));
    return fault ? fault->field() : "";
  };
  EXPECT_EQ(faulty([](auto* section) { section->set_memory_budget_gib(40.5); }), "");
  EXPECT_EQ(faulty([](auto* section) { section->set_memory_budget_gib(-1); }), "activation_checkpoint.memory_budget_gib");
  EXPECT_EQ(faulty([](auto* section) { section->set_memory_budget_gib(std::numeric_limits<double>::quiet_NaN()); }),
            "activation_checkpoint.memory_budget_gib");
  EXPECT_EQ(faulty([](auto* section) { section->set_selective_ac_option("op"); }), "activation_checkpoint.selective_ac_option");
  EXPECT_EQ(faulty([](auto* section) { section->set_selective_ac_policy("* aten::mm all"); }),
            "activation_checkpoint.selective_ac_policy");
  EXPECT_EQ(faulty([](auto* section) { section->add_per_op_sac_force_recompute_mm_shapes_by_fqns("q_proj"); }),
            "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns");
}

TEST(CheckRecipe, EveryUnsupportedKeyHasADefault) {
  const auto* type = v1::Recipe::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const auto* section = type->field(i)->message_type();
    for (int k = 0; k < section->field_count(); ++k) {
      const auto& options = section->field(k)->options();
      EXPECT_TRUE(!options.GetExtension(v1::not_supported_yet) || options.HasExtension(v1::default_text));
    }
  }
}

struct Bad {
  const char *section, *key, *value, *good;
};

TEST(CheckRecipe, RefusesEachKeyOutOfItsRange) {
  for (const Bad& bad : std::vector<Bad>{
           {"training", "local_batch_size", "0", "1"},
           {"training", "global_batch_size", "0", "-1"},
           {"training", "global_batch_size", "-2", "16"},
           {"training", "seq_len", "0", "1"},
           {"training", "seq_len", "9000000000", "8192"},
           {"training", "max_norm", "-0.5", "0"},
           {"training", "max_norm", "nan", "1"},
           {"training", "steps", "0", "1"},
           {"training", "mixed_precision_param", "\"float64\"", "\"float16\""},
           {"training", "initial_loss_scale", "0.5", "65536"},
           {"training", "initial_loss_scale", "1e39", "65536"},
           {"training", "initial_loss_scale", "1024", "65536"},
           {"training", "loss_scale_growth_interval", "0", "2000"},
           {"training", "loss_scale_growth_interval", "20000000", "2000"},
           {"training", "loss_scale_growth_interval", "100", "2000"},
           {"training", "dtype", "\"float16\"", "\"bfloat16\""},
           {"optimizer", "stochastic_rounding", "true", "false"},
           {"optimizer", "master_weights", "true", "false"},
           {"training", "mixed_precision_reduce", "\"float64\"", "\"float32\""},
           {"training", "seed", "-1", "0"},
           {"training", "validation_fraction", "1.0", "0.5"},
           {"training", "validation_fraction", "-0.1", "0"},
           {"parallelism", "data_parallel_replicate_degree", "0", "2"},
           {"parallelism", "data_parallel_replicate_degree", "-1", "2"},
           {"parallelism", "data_parallel_shard_degree", "0", "-1"},
           {"parallelism", "zero_stage", "0", "1"},
           {"parallelism", "zero_stage", "4", "2"},
           {"parallelism", "fsdp_prefetch_depth", "-1", "0"},
           {"parallelism", "fsdp_prefetch_depth", "65", "64"},
           {"parallelism", "fsdp_reshard_after_forward_size", "-1", "0"},
           {"parallelism", "tensor_parallel_degree", "0", "2"},
           {"parallelism", "pipeline_parallel_degree", "-3", "2"},
           {"parallelism", "pipeline_parallel_microbatch_size", "0", "1"},
           {"parallelism", "pipeline_parallel_schedule_csv", "\"no-such-file.csv\"", "\"\""},
           {"parallelism", "pipeline_parallel_schedule_csv", "\"0F0,0B0\\n1F0,1B1\\n\"", "\"0F0,0B0\\n1F0,1B0\\n\""},
           {"optimizer", "name", "\"Lion\"", "\"SGD\""},
           {"optimizer", "lr", "0", "1e-3"},
           {"optimizer", "lr", "inf", "1e-3"},
           {"optimizer", "lr", "nan", "1e-3"},
           {"optimizer", "beta1", "1.0", "0"},
           {"optimizer", "beta2", "-0.1", "0.95"},
           {"optimizer", "eps", "0", "1e-8"},
           {"optimizer", "weight_decay", "-1", "0"},
           {"lr_scheduler", "warmup_steps", "-1", "0"},
           {"lr_scheduler", "decay_type", "\"exponential\"", "\"sqrt\""},
           {"lr_scheduler", "decay_ratio", "1.5", "0.2"},
           {"lr_scheduler", "min_lr_factor", "1.5", "1"},
           {"activation_checkpoint", "selective_ac_option", "\"0\"", "\"1\""},
           {"activation_checkpoint", "selective_ac_option", "\"every\"", "\"3\""},
           {"checkpoint", "interval", "0", "1"},
           {"checkpoint", "keep_latest_k", "-1", "0"},
           {"checkpoint", "max_pending_commits", "-1", "0"},
           {"checkpoint", "folder", "\"checkpoint\"", "\"s3://bucket/runs\""},
           {"checkpoint", "folder", "\"gs://bucket/runs\"", "\"\""},
           {"comm", "init_timeout_seconds", "0", "1"},
           {"comm", "train_timeout_seconds", "0", "1"},
           {"comm", "trace_buf_size", "0", "1"},
           {"comm", "trace_buf_size", "10000001", "10000000"},
           {"metrics", "log_freq", "0", "1"},
           {"metrics", "trace_steps", "[0]", "[1, 3]"},
           {"metrics", "trace_steps", "[1000000]", "[]"},
           {"metrics", "trace_steps", "[1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8]", "[1, 1]"},
           {"metrics", "trace_ranks", "[-1]", "[0, 7]"},
           {"validation", "freq", "0", "1"},
           {"validation", "steps", "0", "-1"},
           {"job", "dump_folder", "\"\"", "\"a\""},
           {"model", "tokenizer_path", "\"\"", "\"byte\""},
       }) {
    const std::string head = std::string("[") + bad.section + "]\n" + bad.key + " = ";
    EXPECT_EQ(Refusal(head + bad.value).substr(0, Refusal(head + bad.value).find('|')), std::string(bad.section) + "." + bad.key)
        << bad.value;
    EXPECT_EQ(Refusal(head + bad.good), "accepted") << bad.key;
  }
}

// A key of one optimizer is refused with another, and what it would not do there is not left to be found out.
TEST(CheckRecipe, RefusesKeysOfAnotherOptimizer) {
  struct {
    const char *text, *field, *remedy;
  } bad[] = {
      {"name = \"AdamW\"\nmuon_lr = 0.02", "optimizer.muon_lr", "is a key of Muon: remove it with AdamW"},
      {"name = \"Adam\"\nmomentum = 0.9", "optimizer.momentum", "is a key of SGD, Muon: remove it with Adam"},
      {"nesterov = true", "optimizer.nesterov", "is a key of SGD, Muon: remove it with AdamW"},
      {"name = \"SGD\"\nbeta1 = 0.8", "optimizer.beta1", "is a key of AdamW, Adam, Muon: remove it with SGD"},
      {"name = \"SGD\"\nmuon_ns_steps = 6", "optimizer.muon_ns_steps", "is a key of Muon: remove it with SGD"},
      {"muon_adjust_lr_fn = \"match_rms_adamw\"", "optimizer.muon_adjust_lr_fn", "is a key of Muon: remove it with AdamW"},
      {"name = \"SGD\"\nnesterov = true", "optimizer.nesterov",
       "needs a momentum above 0: set optimizer.momentum, or remove nesterov"},
      {"name = \"Muon\"\nmomentum = 1.0", "optimizer.momentum", "must be at least 0 and below 1"},
      {"name = \"Muon\"\nmuon_lr = 0", "optimizer.muon_lr", "must be above 0"},
      {"name = \"Muon\"\nmuon_ns_steps = 100", "optimizer.muon_ns_steps", "must lie between 1 and 99"},
      {"name = \"Muon\"\nmuon_adjust_lr_fn = \"other\"", "optimizer.muon_adjust_lr_fn",
       "must be one of \"original\", \"match_rms_adamw\""},
  };
  for (const auto& [text, field, remedy] : bad) {
    const std::string refusal = Refusal(std::string("[optimizer]\n") + text);
    EXPECT_EQ(refusal.substr(0, refusal.find('|')), field) << text;
    EXPECT_EQ(refusal.substr(refusal.rfind('|') + 1), remedy) << text;
  }
  for (const char* good : {"name = \"SGD\"", "name = \"SGD\"\nmomentum = 0.9\nnesterov = true", "name = \"Muon\"",
                           "name = \"Muon\"\nmuon_lr = 0.02\nnesterov = false\nmuon_ns_steps = 6\nbeta1 = 0.8"}) {
    EXPECT_EQ(Refusal(std::string("[optimizer]\n") + good), "accepted") << good;
  }
}

// Each is opened, logged or shown: no NUL that ends a path early, nothing that moves a terminal's cursor.
TEST(CheckRecipe, TextsHaveNoControlCharacters) {
  int texts = 0;
  const auto* type = v1::Recipe::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const auto* section = type->field(i)->message_type();
    for (int k = 0; k < section->field_count(); ++k) {
      const auto* field = section->field(k);
      if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_STRING) continue;
      if (field->is_repeated()) continue;  // names of modules: no path, and compared with those that there are
      ++texts;
      for (const std::string& bad :
           {std::string("a\0b", 3), std::string("\x1b[2J"), std::string("a\nb"), std::string("\xc2\x9b")}) {
        v1::Recipe recipe = DefaultRecipe();
        google::protobuf::Message* values = recipe.GetReflection()->MutableMessage(&recipe, type->field(i));
        values->GetReflection()->SetString(values, field, bad);
        const auto fault = GetFieldViolation(CheckRecipe(recipe));
        ASSERT_TRUE(fault) << field->full_name();
        EXPECT_EQ(fault->field(), type->field(i)->name() + "." + field->name());
        const bool has_lines = field->name() == "pipeline_parallel_schedule_csv" && bad == "a\nb";  // whose cell is named
        EXPECT_EQ(fault->value(), has_lines ? "a" : Printable(bad));
      }
    }
  }
  EXPECT_GT(texts, 5);
}

TEST(CheckRecipe, ValidationNeedsText) {
  EXPECT_EQ(Refusal("[validation]\nenable = true\n[training]\nvalidation_fraction = 0.0").substr(0, 28),
            "training.validation_fraction");
}

TEST(LoadRecipe, SaysWhichFile) {
  const auto missing = LoadRecipe("nowhere.toml");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GetFieldViolation(missing.status())->value(), "nowhere.toml");
  const std::string path = testing::TempDir() + "/recipe.toml";
  std::ofstream(path) << "[training]\nstep = 1\n";
  const auto bad = LoadRecipe(path);
  EXPECT_NE(std::string(bad.status().message()).find(path), std::string::npos) << bad.status();
  EXPECT_EQ(GetFieldViolation(bad.status())->field(), "training.step");
  std::ofstream(path) << "[training]\nsteps = 1\n";
  EXPECT_TRUE(LoadRecipe(path).ok());
  EXPECT_FALSE(LoadRecipe(testing::TempDir()).ok()) << "a folder";
  std::remove(path.c_str());
}

// The file is read where a recipe is; from there on its text is the value, and is written and read again.
TEST(ListedSchedule, IsReadOnce) {
  const std::string path = ::testing::TempDir() + "/schedule.csv", text = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
  std::ofstream(path) << text;
  const auto recipe = ParseRecipe("[parallelism]\npipeline_parallel_schedule_csv = \"" + path + "\"\n");
  ASSERT_TRUE(recipe.ok()) << recipe.status();
  EXPECT_EQ(recipe->parallelism().pipeline_parallel_schedule_csv(), text);
  std::remove(path.c_str());
  const auto again = ParseRecipe(RecipeToToml(*recipe));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->parallelism().pipeline_parallel_schedule_csv(), text);

  v1::Recipe unread;
  unread.mutable_parallelism()->set_pipeline_parallel_schedule_csv(path);
  EXPECT_NE(CheckRecipe(unread).message().find("is a path, and the file's text is needed here"), std::string::npos);
}

TEST(ListedSchedule, IsRefusedWithItsCell) {
  const std::string path = ::testing::TempDir() + "/wrong.csv";
  std::ofstream(path) << "0F0,0B0\n1F0,1UNSHARD,1B0\n";
  const auto recipe = ParseRecipe("", {{"parallelism.pipeline_parallel_schedule_csv", path}});
  const auto fault = GetFieldViolation(recipe.status());
  ASSERT_TRUE(fault) << recipe.status();
  EXPECT_EQ(fault->field(), "parallelism.pipeline_parallel_schedule_csv");
  EXPECT_EQ(fault->value(), "1UNSHARD");
  EXPECT_NE(fault->remedy().find("line 2, column 2: UNSHARD is of PyTorch's compiled format"), std::string::npos);
  std::ofstream(path, std::ios::trunc) << "0F0,0B0";
  const auto one = ParseRecipe("", {{"parallelism.pipeline_parallel_schedule_csv", path}});
  EXPECT_NE(one.status().message().find("1 line"), std::string::npos) << one.status();
}

}  // namespace
}  // namespace legoai::parallel
