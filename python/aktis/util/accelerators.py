"""Names of accelerators, for the option `accelerator_type`.

    from aktis.util.accelerators import NVIDIA_H200

    @aktis.remote(num_gpus=1, accelerator_type=NVIDIA_H200)
    def train() -> None: ...

They are plain strings: any other name that a node was started with does as well.
"""

from typing import Final

NVIDIA_TESLA_V100: Final = "V100"
NVIDIA_TESLA_P100: Final = "P100"
NVIDIA_TESLA_T4: Final = "T4"
NVIDIA_TESLA_P4: Final = "P4"
NVIDIA_TESLA_K80: Final = "K80"
NVIDIA_TESLA_A10G: Final = "A10G"
NVIDIA_L4: Final = "L4"
NVIDIA_L40S: Final = "L40S"
NVIDIA_A100: Final = "A100"
NVIDIA_A100_40G: Final = "A100-40G"
NVIDIA_A100_80G: Final = "A100-80G"
NVIDIA_H100: Final = "H100"
NVIDIA_H200: Final = "H200"
NVIDIA_H20: Final = "H20"
NVIDIA_B200: Final = "B200"
NVIDIA_B300: Final = "B300"
INTEL_MAX_1550: Final = "Intel-GPU-Max-1550"
INTEL_MAX_1100: Final = "Intel-GPU-Max-1100"
INTEL_GAUDI: Final = "Intel-GAUDI"
AMD_INSTINCT_MI100: Final = "AMD-Instinct-MI100"
AMD_INSTINCT_MI210: Final = "AMD-Instinct-MI210"
AMD_INSTINCT_MI250: Final = "AMD-Instinct-MI250X-MI250"
AMD_INSTINCT_MI300X: Final = "AMD-Instinct-MI300X-OAM"
AWS_NEURON_CORE: Final = "aws-neuron-core"
GOOGLE_TPU_V4: Final = "TPU-V4"
GOOGLE_TPU_V5P: Final = "TPU-V5P"
GOOGLE_TPU_V5LITEPOD: Final = "TPU-V5LITEPOD"
GOOGLE_TPU_V6E: Final = "TPU-V6E"
