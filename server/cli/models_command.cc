#include <string>

#include "core/model/catalog.h"
#include "core/model/model_facts.h"
#include "proto/enum_text.h"
#include "proto/legoai/v1/model.pb.h"
#include "server/cli/command.h"
#include "server/cli/output.h"

namespace legoai::cli {
namespace {

Tree ModelTree(const v1::Model& model) {
  Tree tree;
  tree["name"] = model.name();
  tree["hub_names"] = model::HubNames(model.name());
  tree["parameters"] = model::ParameterCount(model);
  tree["architecture"] = EnumText(model.architecture());
  tree["num_hidden_layers"] = model.num_hidden_layers();
  tree["hidden_size"] = model.hidden_size();
  tree["intermediate_size"] = model.intermediate_size();
  tree["num_attention_heads"] = model.num_attention_heads();
  tree["num_key_value_heads"] = model.num_key_value_heads();
  tree["vocab_size"] = model.vocab_size();
  tree["max_position_embeddings"] = model.max_position_embeddings();
  tree["tie_word_embeddings"] = model.tie_word_embeddings();
  return tree;
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  Tree list = Tree::array();
  Table table({"<name", "parameters", "<family", "layers", "width", "inner width", "heads", "kv heads", "token ids",
               "longest context", "<or as on the Hub"});
  for (const v1::Model& model : model::Catalog()) {
    list.push_back(ModelTree(model));
    table.Add({model.name(), WithCommas(model::ParameterCount(model)), EnumText(model.architecture()),
               std::to_string(model.num_hidden_layers()), std::to_string(model.hidden_size()),
               std::to_string(model.intermediate_size()), std::to_string(model.num_attention_heads()),
               std::to_string(model.num_key_value_heads()), WithCommas(model.vocab_size()),
               WithCommas(model.max_position_embeddings()), model::HubNames(model.name()).front()});
  }
  Print(arguments.format() == Format::kTable ? table.Text() : TreeText(arguments.format(), list));
  return kDone;
}

}  // namespace

Command ModelsCommand() {
  CommandSpec spec;
  spec.name = "models";
  spec.summary = "Lists the models that are known by name; any Hugging Face config.json of their families works too.";
  spec.details = "A model's name on Hugging Face's Hub stands for it too; -o json lists all of them.";
  spec.example = "lego models";
  return {spec, Run};
}

}  // namespace legoai::cli
