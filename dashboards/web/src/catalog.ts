// What can be planned for: the models and devices that the server knows, and clusters by their name.
import { get } from './api';

export interface Catalog {
  models: { name: string; parameters: number; architecture: string; max_position_embeddings: number }[];
  devices: { type: string; kind: string | null; memory_bytes: number; node_link: string; cluster_link: string }[];
}

// A Cluster message as the server gave it: it goes back as it came.
export type Cluster = Record<string, unknown>;

export const getCatalog = () => get<Catalog>('/catalog.json');
export const getCluster = (name: string) => get<Cluster>(`/catalog/clusters/${encodeURIComponent(name).replace('%3A', ':')}`);
