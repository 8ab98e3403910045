// What a GPU and the libraries over it are called, for files that keep figures measured with them.
#pragma once

#include <map>
#include <string>

namespace legoai::comm {

// "card" and the versions "cuda", "nccl", "cublas" and "cudnn"; without those that cannot be found out.
std::map<std::string, std::string> DescribeCuda(int device);

}  // namespace legoai::comm
